"""Right answers of module 07 in other styles."""

import heapq
import math

import torch
import torch.nn.functional as F
from torch import nn

from autograder.alternatives import Styles
from solutions.attention import masked_softmax
from solutions.block import FeedForward, LayerNorm, TransformerBlock
from solutions.encoder_decoder import CrossAttention as GivenCrossAttention
from solutions.encoder_decoder import DecoderBlock as GivenDecoderBlock
from solutions.encoder_decoder import EncoderBlock as GivenEncoderBlock
from solutions.encoder_decoder import EncoderDecoder as GivenEncoderDecoder
from solutions.multi_head import MultiHeadAttention, merge_heads
from solutions.positions import sinusoidal_encoding

styles = Styles()


@styles("CrossAttention", "a MultiHeadAttention with a context")
class Inherited(MultiHeadAttention):
    def forward(self, x, memory, mask=None):
        return super().forward(x, memory, mask)


@styles("CrossAttention", "einsum")
class Einsum(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.d_k = heads, width // heads
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            setattr(self, name, nn.Linear(width, width))

    def forward(self, queries, memory, mask=None):
        B, T, _ = queries.shape
        q = self.W_Q(queries).view(B, T, self.heads, self.d_k)
        k, v = (W(memory).view(B, -1, self.heads, self.d_k) for W in (self.W_K, self.W_V))
        scores = torch.einsum("bthk,bshk->bhts", q, k) * self.d_k**-0.5
        if mask is not None:
            scores = torch.where(mask[..., None, :, :], scores, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1)
        return self.W_O(torch.einsum("bhts,bshk->bthk", weights, v).reshape(B, T, -1)), weights


@styles("CrossAttention", "one head after the other")
class HeadByHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, memory, mask=None):
        pieces = zip(*(tensor.chunk(self.h, -1) for tensor in (self.W_Q(x), self.W_K(memory), self.W_V(memory))), strict=True)
        heads, maps = [], []
        for q, k, v in pieces:
            weights = masked_softmax(q @ k.mT / math.sqrt(q.shape[-1]), mask)
            heads.append(weights @ v)
            maps.append(weights.expand(*q.shape[:2], -1))
        return self.W_O(torch.cat(heads, -1)), torch.stack(maps, 1)


@styles("CrossAttention", "keys and values in one product")
class Fused(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, memory, mask=None):
        both = F.linear(memory, torch.cat([self.W_K.weight, self.W_V.weight]), torch.cat([self.W_K.bias, self.W_V.bias]))
        q, (k, v) = self.heads(self.W_Q(x)), map(self.heads, both.chunk(2, -1))
        scores = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(-3).logical_not(), float("-inf"))
        weights = scores.softmax(3)
        return self.W_O(merge_heads(weights @ v)), weights

    def heads(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).movedim(-2, 1)


@styles("EncoderBlock", "module 04's block with ReLU")
class EncoderFromBlock(TransformerBlock):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__(d_model, n_heads, d_ff, norm, dropout, activation=torch.relu)


@styles("EncoderBlock", "a function for the residual")
class EncoderWithWrapper(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__()
        self.is_pre = norm == "pre"
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, nn.ReLU())
        self.norm_1, self.norm_2 = LayerNorm(d_model), LayerNorm(d_model)
        self.p = dropout

    def forward(self, x, mask=None):
        x = self.around(x, self.norm_1, lambda y: self.attention(y, y, mask)[0])
        return self.around(x, self.norm_2, self.feed_forward)

    def around(self, x, norm, sublayer):
        added = F.dropout(sublayer(norm(x) if self.is_pre else x), self.p, self.training)
        return x + added if self.is_pre else norm(x + added)


class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.W_2(self.W_1(x).clamp(min=0))


@styles("EncoderBlock", "torch's own LayerNorm and Linear")
class EncoderOfTorch(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__()
        self.norm = norm
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = Mlp(d_model, 4 * d_model if d_ff is None else d_ff)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout_1, self.dropout_2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x, mask=None):
        if self.norm == "post":
            attended, _ = self.attention(x, mask=mask)
            x = self.norm_1(x + self.dropout_1(attended))
            return self.norm_2(x + self.dropout_2(self.feed_forward(x)))
        attended, _ = self.attention(self.norm_1(x), mask=mask)
        x = x + self.dropout_1(attended)
        return x + self.dropout_2(self.feed_forward(self.norm_2(x)))


@styles("DecoderBlock", "a list of sub-layers")
class DecoderOfList(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__()
        self.attention, self.cross_attention = MultiHeadAttention(d_model, n_heads), MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, torch.relu)
        self.norm_1, self.norm_2, self.norm_3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)
        self.order, self.p = norm, dropout

    def forward(self, x, memory, source_mask=None, target_mask=None):
        steps = [
            (self.norm_1, lambda y: self.attention(y, mask=target_mask)[0]),
            (self.norm_2, lambda y: self.cross_attention(y, memory, source_mask)[0]),
            (self.norm_3, self.feed_forward),
        ]
        for norm, sublayer in steps:
            if self.order == "pre":
                x = x + F.dropout(sublayer(norm(x)), self.p, training=self.training)
            else:
                x = norm(x + F.dropout(sublayer(x), self.p, training=self.training))
        return x


@styles("DecoderBlock", "an encoder's block with one sub-layer more")
class DecoderFromEncoder(GivenEncoderBlock):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__(d_model, n_heads, d_ff, norm, dropout)
        self.cross_attention, self.norm_3 = GivenCrossAttention(d_model, n_heads), LayerNorm(d_model)

    def forward(self, x, memory, source_mask=None, target_mask=None):
        pre = self.norm == "pre"
        before = [norm if pre else nn.Identity() for norm in (self.norm_1, self.norm_2, self.norm_3)]
        after = [nn.Identity() if pre else norm for norm in (self.norm_1, self.norm_2, self.norm_3)]
        x = after[0](x + self.drop(self.attention(before[0](x), mask=target_mask)[0]))
        x = after[1](x + self.drop(self.cross_attention(before[1](x), memory, source_mask)[0]))
        return after[2](x + self.drop(self.feed_forward(before[2](x))))


@styles("DecoderBlock", "torch's own LayerNorm and Linear")
class DecoderOfTorch(nn.Module):
    def __init__(self, d_model, n_heads, d_ff=None, norm="post", dropout=0.0):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.cross_attention = Einsum(d_model, n_heads)
        self.feed_forward = Mlp(d_model, d_ff or 4 * d_model)
        for i in (1, 2, 3):
            setattr(self, f"norm_{i}", nn.LayerNorm(d_model))
        self.drop = nn.Dropout(dropout)
        self.run = self.pre if norm == "pre" else self.post

    def forward(self, x, memory, source_mask=None, target_mask=None):
        return self.run(x, memory, source_mask, target_mask)

    def pre(self, x, memory, source_mask, target_mask):
        y = self.norm_1(x)
        x = x + self.drop(self.attention(y, y, target_mask)[0])
        x = x + self.drop(self.cross_attention(self.norm_2(x), memory, source_mask)[0])
        return x + self.drop(self.feed_forward(self.norm_3(x)))

    def post(self, x, memory, source_mask, target_mask):
        x = self.norm_1(self.drop(self.attention(x, x, target_mask)[0]) + x)
        x = self.norm_2(self.drop(self.cross_attention(x, memory, source_mask)[0]) + x)
        return self.norm_3(self.drop(self.feed_forward(x)) + x)


@styles("EncoderDecoder", "a class for each stack's input, masks by comparison")
class Spelled(nn.Module):
    def __init__(self, n_source, n_target, d_model, n_heads, n_layers, d_ff=None, norm="post", dropout=0.0):
        super().__init__()
        settings = (d_model, n_heads, d_ff, norm, dropout)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for _ in range(n_layers):
            self.encoder.append(GivenEncoderBlock(*settings))
            self.decoder.append(GivenDecoderBlock(*settings))
        self.source_embedding = nn.Embedding(n_source, d_model)
        self.target_embedding = nn.Embedding(n_target, d_model)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.trunc_normal_(embedding.weight, std=1 / math.sqrt(d_model))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.output, self.p, self.root = nn.Linear(d_model, n_target), dropout, math.sqrt(d_model)

    def enter(self, x):
        x = x * self.root
        positions = sinusoidal_encoding(x.size(1), x.size(2)).unsqueeze(0).to(device=x.device, dtype=x.dtype)
        return F.dropout(x + positions, self.p, self.training)

    def encode(self, source, source_mask=None):
        x = self.enter(self.source_embedding(source))
        for layer in self.encoder:
            x = layer(x, mask=source_mask)
        return self.encoder_norm(x)

    def decode(self, target, memory, source_mask=None):
        x = self.enter(self.target_embedding(target))
        positions = torch.arange(target.size(1), device=target.device)
        past = positions[None, :] <= positions[:, None]
        for layer in self.decoder:
            x = layer(x, memory, source_mask=source_mask, target_mask=past)
        return self.output(self.decoder_norm(x))

    def forward(self, source, target, source_mask=None):
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, source_mask)


@styles("EncoderDecoder", "blocks of torch's parts")
class OfOtherParts(GivenEncoderDecoder):
    def __init__(self, n_source, n_target, d_model, n_heads, n_layers, d_ff=None, norm="post", dropout=0.0):
        super().__init__(n_source, n_target, d_model, n_heads, 0, d_ff, norm, dropout)
        self.encoder = nn.ModuleList([EncoderOfTorch(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers)])
        self.decoder = nn.ModuleList([DecoderOfTorch(d_model, n_heads, d_ff, norm, dropout) for _ in range(n_layers)])


@styles("EncoderDecoder", "one forward for both stacks")
class OneRun(GivenEncoderDecoder):
    def run(self, tokens, embedding, blocks, norm, *arguments):
        x = F.embedding(tokens, embedding.weight) * embedding.weight.shape[1] ** 0.5
        x = self.drop(x + sinusoidal_encoding(*x.shape[1:]).to(x))
        for block in blocks:
            x = block(x, *arguments)
        return norm(x)

    def encode(self, source, source_mask=None):
        return self.run(source, self.source_embedding, self.encoder, self.encoder_norm, source_mask)

    def decode(self, target, memory, source_mask=None):
        T = target.shape[1]
        future = torch.triu(torch.ones(T, T, device=target.device), diagonal=1).bool()
        x = self.run(target, self.target_embedding, self.decoder, self.decoder_norm, memory, source_mask, ~future)
        return x @ self.output.weight.T + self.output.bias

    def forward(self, source, target, source_mask=None):
        return self.decode(target, self.encode(source, source_mask), source_mask)


@styles("shift_right", "padded on the left")
def padded(target, start):
    return F.pad(target[:, :-1], (1, 0), value=start)


@styles("shift_right", "rolled, and the first replaced")
def rolled(target, start):
    shifted = target.roll(1, dims=-1)
    shifted[:, 0] = start
    return shifted


@styles("shift_right", "row by row")
def row_by_row(target, start):
    return torch.stack([torch.tensor([start, *row[:-1]]) for row in target.tolist()])


@styles("label_smoothing_loss", "the smoothed target written out")
def written_out(logits, target, smoothing=0.1, pad=0):
    V = logits.size(-1)
    wanted = torch.full_like(logits, smoothing / V).scatter_add(-1, target[..., None], torch.full_like(logits[..., :1], 1 - smoothing))
    per_token = -(wanted.to(logits.dtype) * F.log_softmax(logits, dim=-1)).sum(-1)
    real = (target != pad).to(logits.dtype)
    return (per_token * real).sum() / real.sum()


@styles("label_smoothing_loss", "flattened, the padding left out first")
def flattened(logits, target, smoothing=0.1, pad=0):
    real = target.ne(pad).flatten()
    log_p = torch.log_softmax(logits.flatten(0, 1)[real], 1)
    right = log_p[torch.arange(len(log_p)), target.flatten()[real]]
    return -((1 - smoothing) * right + smoothing * log_p.mean(1)).mean()


@styles("label_smoothing_loss", "token by token")
def token_by_token(logits, target, smoothing=0.1, pad=0):
    losses = []
    for scores, right in zip(logits.flatten(0, 1), target.flatten().tolist(), strict=True):
        if right != pad:
            shifted = scores - scores.max()
            log_p = shifted - shifted.exp().sum().log()
            losses.append(-(1 - smoothing) * log_p[right] - smoothing * log_p.sum() / len(log_p))
    return torch.stack(losses).mean()


@styles("noam_schedule", "in two pieces")
def two_pieces(step, d_model, warmup=4000):
    top = 1 / math.sqrt(d_model * warmup)
    if step < warmup:
        return top * step / warmup
    return top * math.sqrt(warmup / step)


@styles("noam_schedule", "a tensor")
def of_tensors(step, d_model, warmup=4000):
    step = torch.tensor(step, dtype=torch.float64)
    return torch.minimum(step.rsqrt(), step / warmup**1.5) / math.sqrt(d_model)


@styles("noam_schedule", "by logarithms")
def by_logarithms(step, d_model, warmup=4000):
    return math.exp(-0.5 * math.log(d_model) + min(-0.5 * math.log(step), math.log(step) - 1.5 * math.log(warmup)))


@styles("greedy_decode", "a list of columns")
def columns(model, source, start, end, max_length=50, source_mask=None, pad=0):
    with torch.no_grad():
        memory = model.encode(source, source_mask)
        written = [torch.tensor([start] * source.size(0), device=source.device)]
        running = torch.ones_like(written[0], dtype=torch.bool)
        while len(written) <= max_length and running.any():
            logits = model.decode(torch.stack(written, 1), memory, source_mask)
            token = torch.where(running, logits[:, -1, :].max(-1).indices, pad)
            written.append(token)
            running &= token != end
    return torch.stack(written[1:], 1)


@styles("greedy_decode", "a row for the longest, cut at the end")
@torch.inference_mode()
def cut(model, source, start, end, max_length=50, source_mask=None, pad=0):
    memory = model.encode(source, source_mask)
    written = torch.full((len(source), 1 + max_length), pad, dtype=torch.long, device=source.device)
    written[:, 0] = start
    ended = [False] * len(source)
    for t in range(max_length):
        best = model.decode(written[:, : t + 1], memory, source_mask)[:, t].argmax(dim=1)
        for row, token in enumerate(best.tolist()):
            if not ended[row]:
                written[row, t + 1] = token
                ended[row] = token == end
        if all(ended):
            return written[:, 1 : t + 2].clone()
    return written[:, 1:].clone()


@styles("greedy_decode", "one sequence after the other, from one memory")
def one_after_the_other(model, source, start, end, max_length=50, source_mask=None, pad=0):
    memory, rows = model.encode(source, source_mask), []
    for b in range(len(source)):
        tokens = [start]
        while len(tokens) <= max_length and tokens[-1] != end:
            mask = None if source_mask is None else source_mask[b : b + 1]
            logits = model.decode(torch.tensor([tokens]), memory[b : b + 1], mask)
            tokens.append(int(logits[0, -1].argmax()))
        rows.append(torch.tensor(tokens[1:]))
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


@styles("beam_search", "lists of Python")
def python_lists(model, source, start, end, max_length=50, n_beams=4, alpha=0.6):
    with torch.no_grad():
        memory = model.encode(source)
        beams, finished = [(0.0, [start])], []
        while beams:
            candidates = []
            for log_p, tokens in beams:
                logits = model.decode(torch.tensor([tokens]), memory)[0, -1]
                candidates += [(log_p + p, [*tokens, token]) for token, p in enumerate(logits.log_softmax(-1).tolist())]
            candidates.sort(key=lambda candidate: -candidate[0])
            beams = []
            for log_p, tokens in candidates[: n_beams - len(finished)]:
                length = len(tokens) - 1
                if tokens[-1] == end or length == max_length:
                    finished.append((log_p / ((5 + length) / 6) ** alpha, tokens[1:]))
                else:
                    beams.append((log_p, tokens))
            if len(finished) >= n_beams:
                break
    score, tokens = max(finished)
    return tokens, score


@styles("beam_search", "a heap, and candidates beam by beam")
@torch.no_grad()
def heap(model, source, start, end, max_length=50, n_beams=4, alpha=0.6):
    memory = model.encode(source)
    beams, best, places = [(0.0, (start,))], (-math.inf, ()), n_beams
    for length in range(1, max_length + 1):
        tokens = torch.tensor([beam for _, beam in beams])
        log_p = torch.log_softmax(model.decode(tokens, memory.repeat(len(beams), 1, 1))[:, -1], dim=1)
        each = [(total + float(p), (*beam, int(token)))
                for (total, beam), row in zip(beams, log_p, strict=True)
                for p, token in zip(*row.topk(min(n_beams, len(row))), strict=True)]  # fmt: skip
        beams = []
        for total, beam in heapq.nlargest(places, each):
            if beam[-1] == end or length == max_length:
                best = max(best, (total / ((5 + length) / 6) ** alpha, beam[1:]))
                places -= 1
            else:
                beams.append((total, beam))
        if not beams:
            break
    return torch.tensor(best[1]), torch.tensor(best[0])


@styles("beam_search", "sorted rows, a tensor for the finished")
def sorted_rows(model, source, start, end, max_length=50, n_beams=4, alpha=0.6):
    with torch.inference_mode():
        memory = model.encode(source)
        rows, sums, ended, scores = torch.tensor([[start]]), torch.zeros(1, dtype=torch.float64), [], []
        while len(rows):
            logits = model.decode(rows, memory.expand(rows.shape[0], *memory.shape[1:]))[:, -1].double()
            table = sums.view(-1, 1) + logits - logits.logsumexp(1, keepdim=True)
            order = table.view(-1).argsort(descending=True)[: n_beams - len(ended)]
            rows = torch.hstack([rows[order.div(table.size(1), rounding_mode="floor")], (order % table.size(1)).view(-1, 1)])
            sums, going = table.view(-1)[order], []
            for i, row in enumerate(rows):
                if row[-1] == end or len(row) > max_length:
                    ended.append(row[1:].tolist())
                    scores.append(float(sums[i]) / ((4 + len(row)) / 6) ** alpha)
                else:
                    going.append(i)
            rows, sums = rows[going], sums[going]
        place = scores.index(max(scores))
    return ended[place], scores[place]


ALTERNATIVES = styles.found
