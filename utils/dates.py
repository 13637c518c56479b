"""Dates as people write them, in forty languages, and as ISO 8601 writes them: what the encoder-decoder learns to translate."""

import collections
import datetime
import functools
import math
import random

import torch
from babel import Locale
from babel.dates import format_date

LOCALES = [
    *("en", "de", "nl", "sv", "da", "nb", "is", "fr", "es", "it", "pt", "ro", "ca", "pl", "cs", "sk", "sl", "hr", "ru", "uk"),
    *("bg", "sr", "el", "tr", "fi", "et", "hu", "lv", "lt", "sq", "cy", "ga", "eu", "vi", "id", "sw", "he", "ar", "ja", "ko"),
]
STYLES = "medium", "long", "full"  # "short" is left out: whether 3/4/21 is in March or in April, nobody can know
FIRST, LAST = datetime.date(1900, 1, 1).toordinal(), datetime.date(2099, 12, 31).toordinal()
POOL = 50  # so many batches are sorted by length together: padding costs time
HELD_OUT = 10  # every so many days, one is kept for testing, in all languages

PAD, START, END = 0, 1, 2
DIGITS = "0123456789-"


def written(day, locale, style):
    """That day, as people of that locale write it: written(date(2021, 3, 5), "de", "long") -> "5. März 2021"."""
    return format_date(day, style, _locale(locale))


def pairs(n, seed, unseen=False):
    """n pairs of (a date as people write it, the same as ISO 8601); with `unseen`, of days that otherwise never come up."""
    draw, found = random.Random(seed), []
    while len(found) < n:
        ordinal = draw.randint(FIRST, LAST)
        if (ordinal % HELD_OUT == 0) == unseen:
            day = datetime.date.fromordinal(ordinal)
            found.append((written(day, draw.choice(LOCALES), draw.choice(STYLES)), day.isoformat()))
    return found


class Characters:
    """A vocabulary of characters; the first three tokens are PAD, START and END."""

    def __init__(self, characters):
        """characters: an iterable of all that may occur; what else occurs is read as PAD."""
        self.characters = ["·", "▸", "■", *sorted(set(characters))]
        self._index = {character: i for i, character in enumerate(self.characters)}

    def __len__(self):
        return len(self.characters)

    def encode(self, texts, end=False):
        """Texts -> tokens (B, S), padded on the right, and lengths (B); with `end`, an END behind each text."""
        rows = [[self._index.get(character, PAD) for character in text] + [END] * end for text in texts]
        lengths = torch.tensor([len(row) for row in rows])
        return torch.tensor([row + [PAD] * (int(lengths.max()) - len(row)) for row in rows]), lengths

    def decode(self, tokens):
        """Tokens (B, T) -> texts, each up to its END, the special ones left out."""
        rows = (row[: row.index(END)] if END in row else row for row in tokens.tolist())
        return ["".join(self.characters[i] for i in row if i > END) for row in rows]


def batches(n_batches, batch_size, seed):
    """Batches of dates: source (B, S), its lengths (B), and target (B, T) with an END; sources of similar length share a batch."""
    (read, write), shuffle = vocabularies(), random.Random(seed)
    many, pool = pairs(n_batches * batch_size, seed), POOL * batch_size
    for first in range(0, len(many), pool):
        pooled = sorted(many[first : first + pool], key=lambda pair: len(pair[0]))
        together = [pooled[i : i + batch_size] for i in range(0, len(pooled), batch_size)]
        for batch in shuffle.sample(together, len(together)):
            texts, isos = zip(*batch, strict=True)
            yield *read.encode(texts), write.encode(isos, end=True)[0]


@functools.cache
def vocabularies():
    """The Characters of written dates, and those of ISO dates."""
    days = [datetime.date(2021, month, day) for month in range(1, 13) for day in range(1, 29)]
    return Characters(DIGITS + "".join(written(day, *how) for day in days for how in _ways())), Characters(DIGITS)


def loss_without_reading(smoothing, vocabulary):
    """The lowest loss, in nats a token, of a writer that knows which days there are and not which one it is to write."""
    texts = [datetime.date.fromordinal(ordinal).isoformat() + "." for ordinal in range(FIRST, LAST + 1) if ordinal % HELD_OUT]
    begun = collections.Counter(text[:t] for text in texts for t in range(len(text) + 1))
    total = 0.0
    for prefix in {text[:t] for text in texts for t in range(len(text))}:
        ways = [begun[prefix + character] / begun[prefix] for character in DIGITS + "." if prefix + character in begun]
        wanted = [(1 - smoothing) * p + smoothing / vocabulary for p in ways] + [smoothing / vocabulary] * (vocabulary - len(ways))
        total -= begun[prefix] * sum(q * math.log(q) for q in wanted if q)
    return total / sum(map(len, texts))


def _ways():
    return [(locale, style) for locale in LOCALES for style in STYLES]


@functools.cache
def _locale(name):
    return Locale(name)
