"""A small language for the module on BERT, in which words lean on words further to the right.

An animal is known by its sound, a place by its fault, and *it* by the last word of the sentence: "the dog did not cross
the street because it was too tired". All sentences that there are can be listed, so the best score is known that any
model can reach.

Shapes: N sentences, T tokens of the longest one, [CLS] and [SEP] included.
"""

import functools
import itertools
import random

import torch

SOUNDS = {
    "dog": "barked", "cat": "meowed", "horse": "neighed", "cow": "mooed", "sheep": "bleated", "lion": "roared",
    "wolf": "howled", "duck": "quacked", "pig": "grunted", "bee": "buzzed", "snake": "hissed", "owl": "hooted",
}  # fmt: skip
VERBS = {
    "street": "cross", "bridge": "cross", "river": "cross", "hill": "climb", "wall": "climb", "tree": "climb",
    "cave": "enter", "barn": "enter", "forest": "enter", "field": "pass", "road": "pass", "marsh": "pass",
}  # fmt: skip
FAULTS = {
    "street": "busy", "bridge": "shaky", "river": "deep", "hill": "steep", "wall": "high", "tree": "thorny",
    "cave": "dark", "barn": "small", "forest": "dense", "field": "muddy", "road": "dusty", "marsh": "wet",
}  # fmt: skip
ANIMALS = tuple(SOUNDS)
TRAITS = ("tired", "scared", "lazy", "hungry", "sleepy", "shy", "weak", "ill")  # of any animal
KINDS = {
    "animal": ANIMALS, "sound": tuple(SOUNDS.values()), "place": tuple(VERBS), "verb": tuple(dict.fromkeys(VERBS.values())),
    "fault": tuple(FAULTS.values()), "trait": TRAITS, "other": ("the", "did", "not", "because", "it", "was", "too", "that", "near", "and"),
}  # fmt: skip
PAD, CLS, SEP, MASK = SPECIAL = range(4)
VOCABULARY = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", *itertools.chain(*KINDS.values()))
T = 14  # tokens of the longest sentence


def it_is_the_animal(animal, place, trait):
    """A sentence whose last word says that *it* is the animal."""
    return f"the {animal} did not {VERBS[place]} the {place} because it was too {trait}"


def it_is_the_place(animal, place):
    """The same sentence, but for its last word: *it* is the place."""
    return f"the {animal} did not {VERBS[place]} the {place} because it was too {FAULTS[place]}"


@functools.cache
def patterns():
    """Lists of sentences, one a pattern; each pattern is as likely as any other, and so is each of its sentences."""
    pairs, three = list(itertools.product(SOUNDS, VERBS)), list(itertools.product(SOUNDS, VERBS, TRAITS))
    return (
        [it_is_the_animal(*words) for words in three],
        [it_is_the_place(*words) for words in pairs],
        [f"the {animal} {SOUNDS[animal]} because the {place} was {FAULTS[place]}" for animal, place in pairs],
        [f"the {animal} that {SOUNDS[animal]} did {VERBS[place]} the {FAULTS[place]} {place}" for animal, place in pairs],
        [f"the {trait} {animal} {SOUNDS[animal]} near the {FAULTS[place]} {place}" for animal, place, trait in three],
        [f"the {one} {SOUNDS[one]} and the {other} {SOUNDS[other]}" for one, other in itertools.permutations(SOUNDS, 2)],
    )


def sample(n, held_out=False, seed=0):
    """n sentences at random, with repeats: of the four fifths to learn from, or of the fifth that is held out."""
    chooser = random.Random(seed)
    parts = [[sentence for sentence in pattern if _is_held_out(sentence) == held_out] for pattern in patterns()]
    return [chooser.choice(chooser.choice(parts)) for _ in range(n)]


def _is_held_out(sentence):
    return random.Random(sentence).random() < 0.2  # a text as a seed gives the same number everywhere


def encode(sentences):
    """Tokens (N, T) of sentences, [CLS] first, [SEP] last, then [PAD]; and their lengths (N)."""
    rows = [["[CLS]", *sentence.split(), "[SEP]"] for sentence in sentences]
    numbers = {word: number for number, word in enumerate(VOCABULARY)}
    tokens = torch.full((len(rows), T), PAD)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor([numbers[word] for word in row])
    return tokens, torch.tensor([len(row) for row in rows])


def words(tokens):
    """The words of one sequence of tokens, padding left out."""
    return [VOCABULARY[token] for token in tokens if token != PAD]


def kinds(tokens):
    """The kind of each token, as its index in KINDS; -1 for special ones."""
    table = [-1] * len(SPECIAL) + [index for index, kind in enumerate(KINDS.values()) for _ in kind]
    return torch.tensor(table)[tokens]


def best_guesses(tokens, blanks, left_only=False):
    """What one who knows the language by heart writes into the blanks; no model guesses right more often.

    tokens: (N, T) sentences
    blanks: (N, T) booleans, True = not shown
    left_only: True = each blank is guessed from all that stands left of it, blanks too, and from nothing else
    returns: (N, T) tokens; those that are not blanks are as they were
    """
    everything, p = _language()
    guesses = tokens.clone()
    for i, t in blanks.nonzero().tolist():
        seen = torch.arange(T) < t if left_only else ~blanks[i]
        possible = (everything[:, seen] == tokens[i, seen]).all(1)
        guesses[i, t] = torch.zeros(len(VOCABULARY)).index_add_(0, everything[possible, t], p[possible]).argmax()
    return guesses


@functools.cache
def _language():
    everything = [sentence for pattern in patterns() for sentence in pattern]
    p = [1 / len(patterns()) / len(pattern) for pattern in patterns() for _ in pattern]
    return encode(everything)[0], torch.tensor(p)
