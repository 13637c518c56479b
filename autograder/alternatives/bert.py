"""Right answers for module 06 in other styles. Shapes as in solutions/bert.py."""

import functools
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.alternatives import Styles
from solutions.attention import attention_scores, masked_softmax
from solutions.bert import BertEmbeddings
from solutions.bert import masked_lm_loss as given_loss
from solutions.bert import pool as given_pool
from solutions.block import FeedForward, LayerNorm, TransformerBlock
from solutions.block import dropout as given_dropout
from solutions.block import gelu as given_gelu
from solutions.multi_head import MultiHeadAttention, merge_heads, split_heads

styles = Styles()


# mask_tokens


@styles("mask_tokens", "two Bernoulli draws, boolean indexing on a clone, as transformers does")
def mask_by_bernoulli(tokens, mask_token, vocab_size, special=(), p=0.15):
    inputs, labels = tokens.clone(), tokens.clone()
    probabilities = torch.full(tokens.shape, p)
    for token in special:
        probabilities[tokens == token] = 0.0
    chosen = torch.bernoulli(probabilities).bool()
    labels[~chosen] = -100
    blank = torch.bernoulli(torch.full(tokens.shape, 0.8)).bool() & chosen
    inputs[blank] = mask_token
    other = torch.bernoulli(torch.full(tokens.shape, 0.5)).bool() & chosen & ~blank
    words = torch.randint(vocab_size, tokens.shape, dtype=torch.long)
    inputs[other] = words[other]
    return inputs, labels


@styles("mask_tokens", "one number a token, cut at 0.8 p, 0.9 p and p")
def mask_by_one_number(tokens, mask_token, vocab_size, special=(), p=0.15):
    u = torch.rand(tokens.shape)
    u[sum((tokens == token for token in special), torch.zeros_like(tokens, dtype=torch.bool))] = 2.0
    words = (torch.rand(tokens.shape) * vocab_size).long()
    inputs = torch.where(u < 0.8 * p, mask_token, torch.where(u < 0.9 * p, words, tokens))
    return inputs, torch.where(u < p, tokens, -100)


@styles("mask_tokens", "numpy, drawn only for the chosen ones, by index")
def mask_by_numpy(ids, blank, n_words, special=(), rate=0.15):
    generator = np.random.default_rng()
    old = ids.numpy()
    new, answers = old.copy(), np.full_like(old, -100)
    places = np.argwhere((generator.random(old.shape) < rate) & ~np.isin(old, list(special)))
    fates = generator.choice(3, size=len(places), p=[0.8, 0.1, 0.1])
    rows, columns = places.T
    answers[rows, columns] = old[rows, columns]
    new[rows[fates == 0], columns[fates == 0]] = blank
    new[rows[fates == 1], columns[fates == 1]] = generator.integers(0, n_words, (fates == 1).sum())
    return torch.from_numpy(new), torch.from_numpy(answers)


@styles("mask_tokens", "one token at a time, with Python's random")
def mask_by_loop(tokens, mask_token, vocab_size, special=(), p=0.15):
    special = set(special)
    inputs, labels = tokens.tolist(), [[-100] * len(row) for row in tokens]
    for row, answers in zip(inputs, labels):
        for t, token in enumerate(row):
            if token in special or random.random() >= p:
                continue
            answers[t] = token
            die = random.randrange(10)
            if die < 8:
                row[t] = mask_token
            elif die == 8:
                row[t] = random.randrange(vocab_size)
    return torch.tensor(inputs), torch.tensor(labels)


@styles("mask_tokens", "random words first, then the blanks; multinomial")
def mask_by_multinomial(tokens, mask_token, vocab_size, special=(), p=0.15):
    weights = torch.tensor([1 - p, 0.8 * p, 0.1 * p, 0.1 * p])
    fate = torch.multinomial(weights, tokens.numel(), replacement=True).view_as(tokens)
    for token in special:
        fate = fate * (tokens != token)
    labels = tokens * (fate > 0) - 100 * (fate == 0)
    inputs = torch.where(fate == 3, torch.randint_like(tokens, vocab_size), tokens)
    return inputs.masked_fill(fate == 1, mask_token), labels


# masked_lm_loss


@styles("masked_lm_loss", "log_softmax everywhere, gather with clamped labels, a weighted sum")
def loss_by_weights(logits, labels):
    counts = (labels != -100).to(logits.dtype)
    log_p = F.log_softmax(logits, dim=-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(log_p * counts).sum() / torch.clamp(counts.sum(), min=1.0)


@styles("masked_lm_loss", "by hand, with an early return")
def loss_by_early_return(logits, labels):
    keep = labels.flatten() != -100
    if not keep.any():
        return logits.sum() * 0
    scores = logits.flatten(0, -2)[keep]
    scores = scores - scores.max(-1, keepdim=True).values.detach()
    p = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return -p[torch.arange(len(p)), labels.flatten()[keep]].log().mean()


@styles("masked_lm_loss", "one-hot and einsum")
def loss_by_one_hot(logits, labels):
    one_hot = F.one_hot(labels.clamp(min=0), logits.shape[-1]) * (labels != -100).unsqueeze(-1)
    total = torch.einsum("...v,...v->", logits.log_softmax(-1), one_hot.to(logits))
    return -total / max(1, int((labels != -100).sum()))


@styles("masked_lm_loss", "one token at a time")
def loss_by_loop(logits, labels):
    losses = []
    for scores, label in zip(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).tolist()):
        if label >= 0:
            losses.append(torch.logsumexp(scores, 0) - scores[label])
    return sum(losses) / len(losses) if losses else torch.zeros((), dtype=logits.dtype)


# BertEmbeddings


class Positions(nn.Module):
    def __init__(self, max_length, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_length, d_model))

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


@styles("BertEmbeddings", "positions as a module that adds them, a slice, nn.Dropout, torch's LayerNorm")
class EmbeddingsByModules(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_segments=2, dropout=0.0):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = Positions(max_length, d_model)
        self.segment_embedding = nn.Embedding(n_segments, d_model)
        self.norm = nn.LayerNorm(d_model, eps=1e-12)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens, segments=None):
        if segments is None:
            segments = tokens * 0
        return self.drop(self.norm(self.position_embedding(self.token_embedding(tokens) + self.segment_embedding(segments))))


@styles("BertEmbeddings", "the weights indexed, multiplied by one-hot rows, and sliced; F.dropout")
class EmbeddingsByIndex(nn.Module):
    def __init__(self, n_words, n_positions, width, n_segments=2, p=0.0):
        super().__init__()
        self.segment_embedding = nn.Embedding(n_segments, width)
        self.position_embedding = Positions(n_positions, width)
        self.token_embedding = nn.Embedding(n_words, width)
        self.norm = LayerNorm(width, 1e-12)
        self.p = p

    def forward(self, tokens, segments=None):
        words, places, sentences = (table.weight for table in (self.token_embedding, self.position_embedding, self.segment_embedding))
        x = F.one_hot(tokens, len(words)).to(words) @ words
        x = x + places[None, : tokens.size(1)]
        x = x + (sentences[0] if segments is None else sentences[segments])
        return F.dropout(self.norm(x), self.p, training=self.training)


@styles("BertEmbeddings", "positions as a buffer, expanded to the batch, sum of a stack")
class EmbeddingsByStack(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_segments=2, dropout=0.0):
        super().__init__()
        sizes = {"token_embedding": vocab_size, "position_embedding": max_length, "segment_embedding": n_segments}
        for name, size in sizes.items():
            self.add_module(name, nn.Embedding(size, d_model))
        self.norm = LayerNorm(d_model, eps=1e-12)
        self.rate = dropout
        self.register_buffer("positions", torch.arange(max_length), persistent=False)

    def forward(self, tokens, segments=None):
        positions = self.positions[: tokens.shape[1]].expand_as(tokens)
        segments = tokens.new_zeros(tokens.shape) if segments is None else segments
        parts = [self.token_embedding(tokens), self.position_embedding(positions), self.segment_embedding(segments)]
        x = self.norm(torch.stack(parts).sum(0))
        if self.training and self.rate > 0:
            x = x * (torch.rand(x.shape) > self.rate) / (1 - self.rate)
        return x


# BERT


@styles("BERT", "a function that is applied to every module, functools.reduce")
class BertByApply(nn.Module):
    def __init__(self, vocab_size, max_length, n_layers, n_heads, d_model, d_ff=None, dropout=0.0):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab_size, max_length, d_model, 2, dropout)
        layers = [TransformerBlock(d_model, n_heads, d_ff, "post", dropout, given_gelu, 1e-12) for _ in range(n_layers)]
        self.blocks = nn.Sequential(*layers)
        self.apply(self._start)

    @staticmethod
    def _start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.02)
            if getattr(module, "bias", None) is not None:
                module.bias.data.zero_()

    def forward(self, tokens, mask=None, segments=None):
        return functools.reduce(lambda x, block: block(x, mask), self.blocks, self.embeddings(tokens, segments))


class OwnBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, activation=F.gelu)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model, eps=1e-12), nn.LayerNorm(d_model, eps=1e-12)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm_1(x + self.drop(self.attention(x, mask=mask)[0]))
        return self.norm_2(x + self.drop(self.feed_forward(x)))


@styles("BERT", "a post-norm block of its own, torch's norm and gelu, trunc-free init under no_grad")
class BertByOwnBlocks(nn.Module):
    def __init__(self, vocab_size, max_length, n_layers, n_heads, d_model, d_ff=None, dropout=0.0):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab_size, max_length, d_model, dropout=dropout)
        self.blocks = nn.ModuleList([OwnBlock(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "bias" in name:
                    parameter.fill_(0.0)
                elif "norm" not in name:
                    parameter.copy_(0.02 * torch.randn(parameter.shape))

    def forward(self, tokens, mask=None, segments=None):
        x = self.embeddings(tokens, segments)
        if mask is not None:
            mask = mask.expand(len(tokens), tokens.shape[1], tokens.shape[1])
        for i in range(len(self.blocks)):
            x = self.blocks[i](x, mask)
        return x


@styles("BERT", "the block's steps written out in forward")
class BertWrittenOut(nn.Module):
    def __init__(self, vocab_size, max_length, n_layers, n_heads, d_model, d_ff=None, dropout=0.0):
        super().__init__()
        self.n_heads, self.rate = n_heads, dropout
        self.embeddings = BertEmbeddings(vocab_size, max_length, d_model, dropout=dropout)
        self.blocks = nn.ModuleList()
        for _ in range(n_layers):
            self.blocks.append(TransformerBlock(d_model, n_heads, d_ff, norm="post", eps=1e-12))
        for module in self.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if name == "bias":
                    parameter.data *= 0
                elif parameter.ndim == 2:
                    parameter.data = torch.normal(0.0, 0.02, parameter.shape)

    def forward(self, tokens, mask=None, segments=None):
        x = self.embeddings(tokens, segments)
        for block in self.blocks:
            layer = block.attention
            q, k, v = (split_heads(W(x), self.n_heads) for W in (layer.W_Q, layer.W_K, layer.W_V))
            weights = masked_softmax(attention_scores(q, k), None if mask is None else mask[:, None])
            weights = given_dropout(weights, self.rate, self.training)
            written = layer.W_O(merge_heads(weights @ v))
            x = block.norm_1(x + given_dropout(written, self.rate, self.training))
            x = block.norm_2(x + given_dropout(block.feed_forward(x), self.rate, self.training))
        return x


# MaskedLMHead


@styles("MaskedLMHead", "F.linear, torch's norm and gelu")
class HeadByFunctions(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.W = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x, embedding):
        return F.linear(self.norm(F.gelu(self.W(x))), embedding, self.bias)


@styles("MaskedLMHead", "a Sequential of the same parts, einsum")
class HeadByEinsum(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.W, self.norm = nn.Linear(d_model, d_model), LayerNorm(d_model, 1e-12)
        self.bias = nn.Parameter(torch.empty(vocab_size).zero_())

    def forward(self, hidden, table):
        return torch.einsum("...d,vd->...v", nn.Sequential(self.W, nn.GELU(), self.norm)(hidden), table).add(self.bias)


@styles("MaskedLMHead", "register_parameter, erf by hand, one matmul over all tokens")
class HeadByHand(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.W = nn.Linear(d_model, d_model)
        self.norm = LayerNorm(d_model, eps=1e-12)
        self.register_parameter("bias", nn.Parameter(torch.zeros(1, vocab_size).squeeze(0)))

    def forward(self, x, embedding):
        B, T, D = x.shape
        h = self.W(x.reshape(B * T, D))
        h = h * 0.5 * (1 + torch.special.erf(h * 2**-0.5))
        return torch.addmm(self.bias, self.norm(h), embedding.t()).reshape(B, T, -1)


# pool


@styles("pool", "attention with equal weights: one matrix product")
def pool_by_attention(x, mask=None, kind="mean"):
    if kind == "cls":
        return x.select(1, 0)
    if kind == "mean":
        mask = torch.ones_like(x[:, None, :, 0], dtype=torch.bool) if mask is None else mask
        return (masked_softmax(torch.zeros_like(mask, dtype=x.dtype), mask) @ x).squeeze(1)
    raise ValueError("kind must be cls or mean")


@styles("pool", "multiplied by the mask, einsum")
def pool_by_einsum(x, mask=None, kind="mean"):
    if kind not in {"cls", "mean"}:
        raise ValueError(kind)
    if kind == "cls":
        return x[:, 0, :].clone()
    real = torch.ones(x.shape[:2], dtype=x.dtype) if mask is None else mask[:, 0].to(x.dtype)
    return torch.einsum("btd,bt->bd", x, real) / real.sum(1, keepdim=True).clamp(min=1)


@styles("pool", "one sequence at a time")
def pool_by_loop(vectors, mask=None, how="mean"):
    match how:
        case "cls":
            return torch.stack([each[0] for each in vectors])
        case "mean":
            rows = []
            for i, each in enumerate(vectors):
                chosen = each if mask is None else each[mask[i].flatten()]
                rows.append(chosen.mean(0) if len(chosen) else each.sum(0) * 0)
            return torch.stack(rows)
        case _:
            raise ValueError(f"unknown: {how}")


@styles("pool", "torch.where and mean, rescaled; a dict of functions")
def pool_by_where(x, mask=None, kind="mean"):
    def mean():
        if mask is None:
            return torch.mean(x, dim=1)
        real = mask.transpose(1, 2)
        count = torch.maximum(real.sum(dim=1), torch.tensor(1))
        return torch.where(real, x, torch.zeros((), dtype=x.dtype)).mean(dim=1) * x.shape[1] / count

    kinds = {"cls": lambda: x[:, 0], "mean": mean}
    if kind not in kinds:
        raise ValueError(f"kind must be one of {list(kinds)}")
    return kinds[kind]()


# finetune_head


@styles("finetune_head", "requires_grad taken away and given back, F.cross_entropy")
def finetune_by_requires_grad(bert, head, optimizer, tokens, labels, mask=None, freeze=False):
    head.train()
    bert.eval() if freeze else bert.train()
    for parameter in bert.parameters():
        parameter.requires_grad = not freeze
    optimizer.zero_grad()
    loss = F.cross_entropy(head(given_pool(bert(tokens, mask=mask), mask=mask, kind="mean")), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@styles("finetune_head", "detached, gradients set to None by hand, zero_grad at the end")
def finetune_by_detach(encoder, classifier, optimizer, texts, answers, visible=None, freeze=False):
    encoder.train(mode=not freeze)
    classifier.train(True)
    x = encoder(texts, visible)
    if freeze:
        x = x.detach()
    log_p = torch.log_softmax(classifier(given_pool(x, visible)), dim=-1)
    loss = -log_p[range(len(answers)), answers].mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach().item()


@styles("finetune_head", "two branches, the mean by hand")
def finetune_by_branches(bert, head, optimizer, tokens, labels, mask=None, freeze=False):
    if freeze:
        bert.eval()
        with torch.no_grad():
            x = bert(tokens, mask)
    else:
        x = bert.train()(tokens, mask)
    pooled = x.mean(dim=1) if mask is None else (x * mask.mT).sum(1) / mask.sum(-1)
    head.train()
    loss = given_loss(head(pooled), labels)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
    loss.backward()
    optimizer.step()
    return loss.item()


ALTERNATIVES = styles.found
