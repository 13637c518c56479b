"""Encoder-decoder: the transformer of 2017, which reads one sequence and writes another (Vaswani et al. 2017).

Shapes: B batch, T target positions (queries), S source positions (keys), H heads, D model width, K head width,
V target vocabulary, N beams. Masks are boolean and True means *may attend*.
"""

import torch
from torch import nn

from solutions.attention import causal_mask, scaled_dot_product_attention
from solutions.block import FeedForward, LayerNorm
from solutions.multi_head import MultiHeadAttention, merge_heads, split_heads
from solutions.positions import embed


class CrossAttention(nn.Module):
    """Attention of one sequence to another: the decoder asks, and the encoder's memory answers.

    W_Q, W_K, W_V, W_O: (D, D) weights with biases, in torch's (out, in) layout: nn.Linear(d_model, d_model)
    """

    def __init__(self, d_model, n_heads):
        """d_model: width D of a token, on both sides; n_heads: number of heads H, each D / H wide."""
        super().__init__()
        self.n_heads = n_heads
        self.W_Q = nn.Linear(d_model, d_model)
        self.W_K = nn.Linear(d_model, d_model)
        self.W_V = nn.Linear(d_model, d_model)
        self.W_O = nn.Linear(d_model, d_model)

    def forward(self, x, memory, mask=None):
        """Let every token of x look at the tokens of the memory.

        x: (B, T, D) tokens of the decoder, which ask
        memory: (B, S, D) tokens of the encoder, which answer
        mask: boolean tensor that broadcasts to (B, T, S), True = may attend; None = no mask
        returns: the outputs (B, T, D) and the weights (B, H, T, S)
        """
        q = split_heads(self.W_Q(x), self.n_heads)  # (B, H, T, K)
        k = split_heads(self.W_K(memory), self.n_heads)  # (B, H, S, K)
        v = split_heads(self.W_V(memory), self.n_heads)  # (B, H, S, K)
        mask = None if mask is None else mask.unsqueeze(-3)  # the same for every head
        heads, weights = scaled_dot_product_attention(q, k, v, mask)  # (B, H, T, K), (B, H, T, S)
        return self.W_O(merge_heads(heads)), weights  # (B, T, D)


class EncoderBlock(nn.Module):
    """One layer of the encoder: the source's tokens look at each other, then each is worked on alone.

    attention: MultiHeadAttention, norm_1: its LayerNorm
    feed_forward: FeedForward with ReLU, norm_2: its LayerNorm
    """

    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        """d_ff: width of the feed-forward layer, None = 4 D; norm: "post", as in 2017, or "pre"; dropout: of what a sub-layer adds."""
        super().__init__()
        self.norm = norm
        self.attention, self.norm_1 = MultiHeadAttention(d_model, n_heads), LayerNorm(d_model)
        self.feed_forward, self.norm_2 = FeedForward(d_model, d_ff, activation=torch.relu), LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        """x: (B, S, D) tokens of the source; mask: broadcasts to (B, S, S), True = may attend; returns: (B, S, D) tokens."""
        if self.norm == "pre":
            x = x + self.drop(self.attention(self.norm_1(x), mask=mask)[0])
            return x + self.drop(self.feed_forward(self.norm_2(x)))
        x = self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))
        return self.norm_2(x + self.drop(self.feed_forward(x)))


class DecoderBlock(nn.Module):
    """One layer of the decoder: the target's tokens look at each other, then at the source, then each is worked on alone.

    attention: MultiHeadAttention, norm_1: its LayerNorm
    cross_attention: CrossAttention, norm_2: its LayerNorm
    feed_forward: FeedForward with ReLU, norm_3: its LayerNorm
    """

    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        """d_ff: width of the feed-forward layer, None = 4 D; norm: "post", as in 2017, or "pre"; dropout: of what a sub-layer adds."""
        super().__init__()
        self.norm = norm
        self.attention, self.norm_1 = MultiHeadAttention(d_model, n_heads), LayerNorm(d_model)
        self.cross_attention, self.norm_2 = CrossAttention(d_model, n_heads), LayerNorm(d_model)
        self.feed_forward, self.norm_3 = FeedForward(d_model, d_ff, activation=torch.relu), LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, memory, source_mask=None, target_mask=None):
        """One step towards the output: what is written so far, and what it takes from the source.

        x: (B, T, D) tokens of the target
        memory: (B, S, D) what the encoder made of the source; it has been normalised already
        source_mask: broadcasts to (B, T, S), True = this token of the target may look at that token of the memory
        target_mask: broadcasts to (B, T, T), True = this token of the target may look at that token of the target
        returns: (B, T, D) tokens
        """
        if self.norm == "pre":
            x = x + self.drop(self.attention(self.norm_1(x), mask=target_mask)[0])
            x = x + self.drop(self.cross_attention(self.norm_2(x), memory, source_mask)[0])
            return x + self.drop(self.feed_forward(self.norm_3(x)))
        x = self.norm_1(x + self.drop(self.attention(x, mask=target_mask)[0]))
        x = self.norm_2(x + self.drop(self.cross_attention(x, memory, source_mask)[0]))
        return self.norm_3(x + self.drop(self.feed_forward(x)))


class EncoderDecoder(nn.Module):
    """The transformer of 2017, from tokens of the source to logits of the target.

    source_embedding, target_embedding: nn.Embedding, drawn at first with a standard deviation of 1/√D
    encoder, decoder: nn.ModuleList of EncoderBlock and of DecoderBlock
    encoder_norm, decoder_norm: LayerNorm, after the last block of each
    output: nn.Linear(D, V), with a bias
    """

    def __init__(self, n_source, n_target, d_model, n_heads, n_layers, d_ff=None, norm="post", dropout=0.0):
        """n_source, n_target: sizes of the two vocabularies; n_layers: number of blocks on each side; the rest as in the blocks."""
        super().__init__()
        self.source_embedding, self.target_embedding = nn.Embedding(n_source, d_model), nn.Embedding(n_target, d_model)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers))
        self.decoder = nn.ModuleList(DecoderBlock(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers))
        self.encoder_norm, self.decoder_norm = LayerNorm(d_model), LayerNorm(d_model)
        self.output = nn.Linear(d_model, n_target)
        self.drop = nn.Dropout(dropout)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d_model**-0.5)  # `embed` multiplies by √D

    def encode(self, source, source_mask=None):
        """Read the source, once.

        source: (B, S) tokens
        source_mask: broadcasts to (B, 1, S), True = a real token; None = no padding
        returns: (B, S, D) the memory
        """
        x = self.drop(embed(source, self.source_embedding.weight))  # √D · embedding + position
        for block in self.encoder:
            x = block(x, source_mask)
        return self.encoder_norm(x)

    def decode(self, target, memory, source_mask=None):
        """Given the memory and the target so far, what comes next, at every position? Nobody sees the target's future.

        target: (B, T) tokens, shifted right: a start token first
        memory: (B, S, D), as `encode` returns it
        source_mask: the one that was given to `encode`
        returns: (B, T, V) logits
        """
        x = self.drop(embed(target, self.target_embedding.weight))
        target_mask = causal_mask(target.shape[1]).to(target.device)  # (T, T)
        for block in self.decoder:
            x = block(x, memory, source_mask, target_mask)
        return self.output(self.decoder_norm(x))

    def forward(self, source, target, source_mask=None):
        """Training's way: all positions of the target at once. source (B, S) and target (B, T) -> logits (B, T, V)."""
        return self.decode(target, self.encode(source, source_mask), source_mask)


def shift_right(target, start):
    """What the decoder is given while it learns to write `target`: at each position, the token before.

    target: (B, T) tokens
    start: the token that stands before the first one
    returns: (B, T) tokens

    >>> shift_right(torch.tensor([[5, 6, 2], [7, 2, 0]]), start=1)
    tensor([[1, 5, 6],
            [1, 7, 2]])
    """
    first = torch.full_like(target[:, :1], start)  # (B, 1)
    return torch.cat([first, target[:, :-1]], dim=1)


def label_smoothing_loss(logits, target, smoothing=0.1, pad=0):
    """Cross-entropy against a target that is not quite sure: the mean over the tokens that are not padding.

    The right token gets 1 - smoothing, and `smoothing` is spread evenly over all V tokens, the right one among them.

    logits: (B, T, V) one score for each token of the vocabulary
    target: (B, T) the right tokens, `pad` where there is nothing to predict
    returns: a tensor of one number

    >>> label_smoothing_loss(torch.tensor([[[0.0, 0.0, 0.6931], [9.0, 0.0, 0.0]]]), torch.tensor([[2, 0]]), smoothing=0.3)
    tensor(0.8318)
    """
    log_p = logits - logits.logsumexp(-1, keepdim=True)  # (B, T, V)
    right = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (B, T)
    loss = -(1 - smoothing) * right - smoothing * log_p.mean(-1)  # (B, T)
    return loss[target != pad].mean()


def noam_schedule(step, d_model, warmup=4000):
    """The learning rate of 2017: up in a line for `warmup` steps, then down with the root of the step.

    step: number of the step, counted from 1
    returns: D^-½ · min(step^-½, step · warmup^-1½)

    >>> [round(noam_schedule(step, d_model=64, warmup=100), 6) for step in (1, 100, 400)]
    [0.000125, 0.0125, 0.00625]
    """
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@torch.no_grad()
def greedy_decode(model, source, start, end, max_length=50, source_mask=None, pad=0):
    """Write one token after the other, each time the likeliest one, for a whole batch at once.

    A sequence that has written `end` gets `pad` from then on; when all have, it stops.

    model: an EncoderDecoder in eval mode; only its `encode` (once) and `decode` are used
    source: (B, S) tokens
    max_length: at most so many tokens are written, `end` included
    source_mask: broadcasts to (B, 1, S), True = a real token; None = no padding
    returns: (B, T) tokens, without `start`
    """
    memory = model.encode(source, source_mask)  # (B, S, D): the source does not change while we write
    target = torch.full_like(source[:, :1], start)  # (B, 1)
    finished = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    for _ in range(max_length):
        logits = model.decode(target, memory, source_mask)[:, -1]  # (B, V): what comes after the last token
        token = logits.argmax(-1).masked_fill(finished, pad)  # (B)
        target = torch.cat([target, token[:, None]], dim=1)
        finished = finished | (token == end)
        if finished.all():
            break
    return target[:, 1:]


@torch.no_grad()
def beam_search(model, source, start, end, max_length=50, n_beams=4, alpha=0.6):
    """Write with second thoughts: keep the n_beams likeliest beginnings, and choose among those that came to an end.

    At each step every beam is tried with every token, and the likeliest of all these are kept: as many as n_beams, less
    those that have finished before. One that has written `end`, or max_length tokens, is finished and set aside. When
    all have finished, the one with the highest score is returned: log-probability / ((5 + length) / 6)^alpha, where the
    length counts `end` and not `start`.

    model: an EncoderDecoder in eval mode; only its `encode` (once) and `decode` are used
    source: (1, S) tokens of one sequence
    returns: the best one's tokens (T), without `start`, and its score, a tensor of one number
    """
    memory = model.encode(source)  # (1, S, D): once, whatever the number of beams
    beams, log_p = torch.full_like(source[:, :1], start), torch.zeros(1, device=source.device)  # (N, 1), (N)
    finished = []
    for length in range(1, max_length + 1):
        logits = model.decode(beams, memory.expand(len(beams), -1, -1))[:, -1]  # (N, V)
        total = log_p[:, None] + logits.log_softmax(-1)  # (N, V): log-probabilities of sequences add up
        log_p, index = total.flatten().topk(min(n_beams - len(finished), total.numel()))
        parent, token = index // total.shape[1], index % total.shape[1]
        beams = torch.cat([beams[parent], token[:, None]], dim=1)  # (N, 1 + length)
        done = (token == end) | (length == max_length)
        finished += zip(beams[done, 1:], log_p[done] / ((5 + length) / 6) ** alpha, strict=True)
        beams, log_p = beams[~done], log_p[~done]
        if len(beams) == 0:
            break
    return max(finished, key=lambda pair: pair[1])
