"""A source of tokens whose entropy is known exactly: each token depends on the two before it, by a table of chances."""

import torch


class Source:
    """A Markov source of the second order over V tokens."""

    def __init__(self, V=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.chances = (2 * torch.randn(V, V, V, generator=generator, dtype=torch.float64)).softmax(-1)  # [a, b, c]: c follows a, b
        self.pairs = torch.full((V, V), 1 / V**2, dtype=torch.float64)  # how often b follows a, in the long run
        for _ in range(1000):
            self.pairs = torch.einsum("ab,abc->bc", self.pairs, self.chances)

    def draw(self, n, length, generator=None):
        """n sequences of that many tokens: (n, length)."""
        V = len(self.pairs)
        first = torch.multinomial(self.pairs.flatten(), n, replacement=True, generator=generator)
        tokens = [first // V, first % V]
        while len(tokens) < length:
            tokens.append(torch.multinomial(self.chances[tokens[-2], tokens[-1]], 1, generator=generator)[:, 0])
        return torch.stack(tokens, 1)

    def entropy(self):
        """The surprise of a token, on average, for one who knows the table and the two tokens before it, in nats."""
        return _mean_entropy(self.pairs, self.chances)

    def entropy_after_one(self):
        """The same for one who knows the token before it alone."""
        alone = torch.einsum("ab,abc->bc", self.pairs, self.chances)
        last = self.pairs.sum(0)
        return _mean_entropy(last, alone / last[:, None])

    def floor(self, T):
        """The lowest mean loss over T predictions: at the first of them only one token is known."""
        return (self.entropy_after_one() + (T - 1) * self.entropy()) / T


def _mean_entropy(weights, chances):
    return -(weights[..., None] * chances * chances.log()).sum().item()
