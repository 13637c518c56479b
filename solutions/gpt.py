"""GPT: a decoder-only transformer, how it is trained, how it writes, and what it reads (Radford et al. 2019).

Shapes: B batch, T positions, S positions seen so far, H heads, K width of one head, D model width, V vocabulary.
Tokens are integers from 0 to V - 1, masks boolean, and True means *may attend*.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter

import torch
from torch import nn

from solutions.attention import causal_mask, scaled_dot_product_attention, softmax
from solutions.block import LayerNorm, TransformerBlock, dropout, gelu, scaled_init
from solutions.multi_head import merge_heads, split_heads


def shift_labels(tokens):
    """What a language model reads, and what it is to say at each position: the token that comes next.

    tokens: (B, S) integers
    returns: the inputs (B, T) and the labels (B, T), T = S - 1; the label of an input is the token that follows it

    >>> shift_labels(torch.tensor([[5, 6, 7, 8]]))
    (tensor([[5, 6, 7]]), tensor([[6, 7, 8]]))
    """
    return tokens[:, :-1], tokens[:, 1:]


def cross_entropy(logits, labels):
    """How surprised the model is by what comes, on average over all positions, in nats: the mean of -log softmax(logits)[label].

    It stays finite however large the logits are.

    logits: (..., V) floating-point tensor
    labels: (...) integers
    returns: () tensor of the dtype of logits

    >>> cross_entropy(torch.tensor([[0.0, 0.0], [1000.0, 0.0]]), torch.tensor([1, 0]))
    tensor(0.3466)
    """
    shifted = logits - logits.amax(-1, keepdim=True)  # as in softmax: the largest exponent is 0
    log_probabilities = shifted - shifted.exp().sum(-1, keepdim=True).log()  # (..., V)
    return -log_probabilities.gather(-1, labels.unsqueeze(-1)).mean()


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. `context`: the longest sequence that it can read; `gelu`: "none" (exact) or "tanh" (GPT-2's)."""

    vocab_size: int
    context: int
    n_layers: int
    n_heads: int
    d_model: int
    dropout: float = 0.0
    gelu: str = "none"


class GPT(nn.Module):
    """Embeddings, a stack of pre-norm blocks under a causal mask, a last norm, and the token embedding once more as output.

    token_embedding: nn.Embedding(V, D); its weight is the output's too: logits = x @ weightᵀ
    position_embedding: nn.Embedding(context, D)
    blocks: nn.ModuleList of TransformerBlock, pre-norm
    final_norm: LayerNorm
    config: what it was built with
    """

    def __init__(self, config):
        """config: GPTConfig. The weights start as scaled_init makes them."""
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position_embedding = nn.Embedding(config.context, config.d_model)
        activation = functools.partial(gelu, approximate=config.gelu)
        self.blocks = nn.ModuleList(
            TransformerBlock(config.d_model, config.n_heads, dropout=config.dropout, activation=activation) for _ in range(config.n_layers)
        )
        self.final_norm = LayerNorm(config.d_model)
        scaled_init(self, config.n_layers)

    def forward(self, tokens):
        """At each position, a score for each token that might come next.

        Raises ValueError where there are more positions than the context holds. In training, dropout acts on the sum
        of the embeddings too.

        tokens: (B, T) integers
        returns: the logits (B, T, V)
        """
        T = tokens.shape[1]
        if self.config.context < T:
            raise ValueError(f"{T} tokens don't fit into a context of {self.config.context}")
        positions = torch.arange(T, device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)  # (B, T, D) + (T, D)
        x = dropout(x, self.config.dropout, self.training)
        mask = causal_mask(T).to(tokens.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.final_norm(x) @ self.token_embedding.weight.T  # (B, T, D) @ (D, V)


def lr_schedule(step, peak, warmup, total, floor=0.0):
    """The learning rate of a step: up in a straight line, then down along half a cosine.

    Steps 0 … warmup - 1 go up to the peak, peak / warmup being the first; from step `warmup` (at the peak) to step
    `total` (at the floor) it falls; from there on it stays at the floor.

    step: number of the step, from 0
    returns: a float

    >>> [lr_schedule(step, peak=1.0, warmup=2, total=6) for step in (0, 1, 2, 4, 6, 7)]
    [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min((step - warmup) / (total - warmup), 1.0)  # from 0 to 1
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2


def train_step(model, optimizer, tokens, lr, max_norm=1.0):
    """One step of training: in training mode, on the mean loss of these tokens, with clipped gradients.

    model: takes inputs (B, T), returns logits (B, T, V)
    optimizer: a torch.optim.Optimizer of the model's parameters; all its groups get the learning rate lr
    tokens: (B, S) integers; the model reads the first S - 1 of each row
    max_norm: where the norm of all gradients together is larger, they are scaled down to it before the step
    returns: the loss before the step, as a float
    """
    for group in optimizer.param_groups:
        group["lr"] = lr
    model.train()
    inputs, labels = shift_labels(tokens)
    loss = cross_entropy(model(inputs), labels)
    optimizer.zero_grad()  # backward adds to the gradients: those of the step before must go
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
    """Logits from which to sample: sharpened or flattened, and with the improbable tokens at -inf.

    In this order: divide by the temperature; keep the top_k largest logits; of what is left, keep the smallest set of
    most probable tokens whose probabilities sum to top_p or more. Of equal logits the one of the smaller index comes
    first, so that exactly top_k are kept.

    logits: (..., V) floating-point tensor
    temperature: larger than 0; below 1 = safer, above 1 = wilder
    top_k: how many tokens are kept at most, 1 or more; None = all
    top_p: how much probability is kept at least, 0 < top_p ≤ 1; None = all
    returns: (..., V) tensor of the dtype of logits

    >>> filter_logits(torch.tensor([1.0, 3.0, 2.0]), temperature=0.5, top_k=2)
    tensor([-inf, 6., 4.])
    """
    logits = logits / temperature
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)  # stable: equal ones stay in their order
    if top_k is not None:
        ranks = torch.arange(ranked.shape[-1], device=logits.device)
        ranked = ranked.masked_fill(ranks >= top_k, -math.inf)
    if top_p is not None:
        probabilities = softmax(ranked)
        before = probabilities.cumsum(-1) - probabilities  # of all tokens that rank higher
        ranked = ranked.masked_fill(before >= top_p, -math.inf)
    return torch.empty_like(logits).scatter(-1, order, ranked)  # back in the order of the vocabulary


@torch.no_grad()
def sample(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    """Let a model write: draw the next token from what it predicts at the last position, append it, and again.

    The model sees the last `model.config.context` tokens at most. It samples in eval mode; afterwards it is in the
    mode that it was in.

    model: takes tokens (B, T), returns logits (B, T, V)
    tokens: (B, T) integers, the prompt
    n_new: how many tokens to add
    temperature, top_k, top_p: as in filter_logits
    returns: (B, T + n_new) integers, the prompt included
    """
    training = model.training
    model.eval()
    for _ in range(n_new):
        logits = model(tokens[:, -model.config.context :])[:, -1]  # (B, V)
        probabilities = softmax(filter_logits(logits, temperature, top_k, top_p))
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], dim=1)
    model.train(training)
    return tokens


class KVCache:
    """The keys and values of all positions that one attention layer has seen so far.

    length: the number of positions S that it holds; 0 at the start
    """

    def __init__(self):
        """Empty."""
        self.length = 0
        self.keys = self.values = None

    def append(self, k, v):
        """Add the keys and values of T new positions, behind those that are there.

        k, v: (B, H, T, K) tensors
        returns: all keys and all values (B, H, S, K), S = length, the new ones included
        """
        if self.length:
            k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        self.keys, self.values, self.length = k, v, k.shape[2]
        return k, v


def cached_attention(attention, x, cache, n_heads):
    """Multi-head self-attention of new tokens, which see all earlier ones through the cache, and no later one.

    attention: has the layers W_Q, W_K, W_V, W_O
    x: (B, T, D) the new tokens, one or more
    cache: KVCache of this layer; the new tokens' keys and values are appended to it
    n_heads: number of heads H
    returns: (B, T, D), what attention under a causal mask gives at these positions
    """
    q = split_heads(attention.W_Q(x), n_heads)  # (B, H, T, K)
    k, v = cache.append(split_heads(attention.W_K(x), n_heads), split_heads(attention.W_V(x), n_heads))  # (B, H, S, K)
    mask = causal_mask(x.shape[1], k.shape[2]).to(x.device)  # (T, S): the queries are the last T of S positions
    output, _ = scaled_dot_product_attention(q, k, v, mask)
    return attention.W_O(merge_heads(output))


def decode_step(model, tokens, caches):
    """The logits of new tokens, at the cost of the new tokens alone: what the model gives there for the whole sequence.

    Raises ValueError where the context does not hold the earlier and the new tokens together.

    model: GPT, in eval mode
    tokens: (B, T) integers, the tokens that come after those in the caches, one or more
    caches: a KVCache for each block, in their order; the new tokens are appended
    returns: the logits (B, T, V)
    """
    start, T = caches[0].length, tokens.shape[1]
    if start + T > model.config.context:
        raise ValueError(f"{start} + {T} tokens don't fit into a context of {model.config.context}")
    positions = torch.arange(start, start + T, device=tokens.device)
    x = model.token_embedding(tokens) + model.position_embedding(positions)  # (B, T, D)
    for block, cache in zip(model.blocks, caches):
        x = x + cached_attention(block.attention, block.norm_1(x), cache, model.config.n_heads)
        x = x + block.feed_forward(block.norm_2(x))
    return model.final_norm(x) @ model.token_embedding.weight.T


@torch.no_grad()
def sample_cached(model, tokens, n_new, temperature=1.0, top_k=None, top_p=None):
    """What `sample` does, with caches: each token goes through the model once.

    Raises ValueError where prompt and new tokens together are longer than the context: a cache can't be cropped, since
    each of its positions has its place for good.

    model: GPT
    tokens: (B, T) integers, the prompt
    n_new, temperature, top_k, top_p: as in sample
    returns: (B, T + n_new) integers, the prompt included
    """
    if tokens.shape[1] + n_new > model.config.context:
        raise ValueError(f"{tokens.shape[1]} + {n_new} tokens don't fit into a context of {model.config.context}")
    training = model.training
    model.eval()
    caches = [KVCache() for _ in model.blocks]
    new = tokens
    for _ in range(n_new):
        logits = decode_step(model, new, caches)[:, -1]  # the prompt at first, then one token at a time
        new = torch.multinomial(softmax(filter_logits(logits, temperature, top_k, top_p)), 1)  # (B, 1)
        tokens = torch.cat([tokens, new], dim=1)
    model.train(training)
    return tokens


def merge_pair(tokens, pair, new):
    """Replace every occurrence of two neighbours by one token, from left to right.

    tokens: list of ints
    pair: the two ints (a, b)
    new: the int that takes their place
    returns: a new list

    >>> merge_pair([1, 2, 3, 1, 2, 2], (1, 2), 9)
    [9, 3, 9, 2]
    """
    merged = []
    for token in tokens:
        if merged and (merged[-1], token) == pair:
            merged[-1] = new
        else:
            merged.append(token)
    return merged


def train_bpe(text, n_merges):
    """Learn a vocabulary: start from the 256 bytes, and give the most frequent pair of neighbours a token of its own, again and again.

    Merge number i makes the token 256 + i. Every place where two neighbours stand counts; of equally frequent pairs
    the one that occurs first in the text, as it then is, is taken. It stops early where no pair occurs twice.

    text: a str
    n_merges: how many merges at most
    returns: the merges, a list of pairs (a, b), in the order in which they were made

    >>> train_bpe("aaabdaaabac", 2)
    [(97, 97), (256, 97)]
    """
    tokens, merges = list(text.encode("utf-8")), []
    while len(merges) < n_merges:
        counts = Counter(itertools.pairwise(tokens))
        pair = max(counts, key=counts.get, default=None)  # the first of the largest
        if pair is None or counts[pair] < 2:
            break
        tokens = merge_pair(tokens, pair, 256 + len(merges))
        merges.append(pair)
    return merges


def encode(text, merges):
    """The tokens of a text: its bytes, with every merge made, in the order in which they were learnt.

    text: a str
    merges: list of pairs, as train_bpe returns it
    returns: list of ints

    >>> encode("aab", [(97, 97), (256, 98)])
    [257]
    """
    tokens = list(text.encode("utf-8"))
    for i, pair in enumerate(merges):
        tokens = merge_pair(tokens, pair, 256 + i)
    return tokens


def decode(tokens, merges):
    """The text of tokens. Bytes that are no valid UTF-8 (a model may write any) become the replacement character �.

    tokens: list of ints
    merges: list of pairs, as train_bpe returns it
    returns: a str

    >>> decode([257, 98], [(97, 97), (256, 98)])
    'aabb'
    """
    pieces = [bytes([i]) for i in range(256)]  # the bytes of each token
    for a, b in merges:
        pieces.append(pieces[a] + pieces[b])
    return b"".join(pieces[token] for token in tokens).decode("utf-8", errors="replace")
