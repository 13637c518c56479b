"""Encoder-only: BERT, which reads a text in both directions and learns by filling in blanks (Devlin et al. 2019).

Shapes: B batch, T tokens of a sequence, D model width, V vocabulary, M tokens to be predicted, C classes.
Masks are boolean and True means *may attend*. A label of -100 means *nothing to predict here*.
"""

import torch
from torch import nn

from solutions.block import LayerNorm, TransformerBlock, dropout, gelu


def mask_tokens(tokens, mask_token, vocab_size, special=(), p=0.15):
    """Make a text with blanks, and remember what stood there: what BERT learns from.

    Each token that is not special is chosen with probability p, all independently. Of the chosen ones, 80% become
    mask_token, 10% become a token drawn from the whole vocabulary (each as likely), and 10% stay as they are.
    All draws come from torch's global generator.

    tokens: (B, T) integers; they are left as they are
    mask_token: the token that stands for a blank
    vocab_size: number of tokens V in the vocabulary, special ones included
    special: tokens that are never chosen, like the padding; an iterable of integers
    p: probability of being chosen
    returns: the inputs (B, T), and the labels (B, T): the original token where it was chosen, -100 elsewhere

    >>> mask_tokens(torch.tensor([[1, 7, 8, 9, 2]]), mask_token=3, vocab_size=12, special=[0, 1, 2, 3], p=1.0)[1]
    tensor([[-100,    7,    8,    9, -100]])
    """
    ordinary = ~torch.isin(tokens, torch.tensor(list(special), dtype=tokens.dtype, device=tokens.device))  # (B, T)
    chosen = ordinary & (torch.rand(tokens.shape, device=tokens.device) < p)
    kind = torch.rand(tokens.shape, device=tokens.device)  # a number of its own: below p, the first one says nothing new
    random = torch.randint(vocab_size, tokens.shape, dtype=tokens.dtype, device=tokens.device)
    labels = tokens.masked_fill(~chosen, -100)
    inputs = tokens.masked_fill(chosen & (kind < 0.8), mask_token)
    inputs = torch.where(chosen & (kind >= 0.9), random, inputs)
    return inputs, labels


def masked_lm_loss(logits, labels):
    """Cross-entropy on the tokens that were chosen, and on no others: their mean.

    Where nothing was chosen at all, the loss is 0.

    logits: (..., V) one score for each token of the vocabulary
    labels: (...) the right tokens, -100 = nothing to predict here
    returns: () tensor of the dtype of logits

    >>> masked_lm_loss(torch.tensor([[[0.0, 0.0, math.log(2.0)], [9.0, 0.0, 0.0]]]), torch.tensor([[2, -100]]))
    tensor(0.6931)
    """
    chosen = labels != -100
    scores, targets = logits[chosen], labels[chosen]  # (M, V), (M): the others don't even enter the softmax
    right = scores.gather(-1, targets[:, None]).squeeze(-1)  # (M)
    return (scores.logsumexp(-1) - right).sum() / chosen.sum().clamp(min=1)


class BertEmbeddings(nn.Module):
    """What enters the encoder: token + position + segment, added and normalised.

    token_embedding: (V, D) weight, an nn.Embedding
    position_embedding: (max_length, D) weight, one row a position
    segment_embedding: (n_segments, D) weight, one row for the first sentence and one for the second
    norm: LayerNorm with eps = 1e-12
    """

    def __init__(self, vocab_size, max_length, d_model, n_segments=2, dropout=0.0):
        """max_length: the most tokens that a sequence may have; dropout: of what comes out, in training only."""
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = nn.Embedding(max_length, d_model)
        self.segment_embedding = nn.Embedding(n_segments, d_model)
        self.norm = LayerNorm(d_model, eps=1e-12)
        self.dropout = dropout

    def forward(self, tokens, segments=None):
        """Look up three vectors for each token, and add them.

        tokens: (B, T) integers
        segments: (B, T) integers, which sentence each token belongs to; None = all to the first, number 0
        returns: (B, T, D)
        """
        segments = torch.zeros_like(tokens) if segments is None else segments
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # (T): counted from 0, the same in every sequence
        x = self.token_embedding(tokens) + self.position_embedding(positions) + self.segment_embedding(segments)
        return dropout(self.norm(x), self.dropout, self.training)


class BERT(nn.Module):
    """The encoder: embeddings, and a stack of post-norm blocks in which every token may look at every other one.

    At the start every weight matrix, embeddings too, is drawn with a standard deviation of 0.02, and every bias is 0.

    embeddings: BertEmbeddings
    blocks: nn.ModuleList of TransformerBlock(norm="post"), with exact gelu and eps = 1e-12
    """

    def __init__(self, vocab_size, max_length, n_layers, n_heads, d_model, d_ff=None, dropout=0.0):
        """n_layers: number of blocks; d_ff: width of their feed-forward layer, None = 4 D; dropout: of embeddings and blocks."""
        super().__init__()
        self.embeddings = BertEmbeddings(vocab_size, max_length, d_model, dropout=dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(d_model, n_heads, d_ff, norm="post", dropout=dropout, eps=1e-12) for _ in range(n_layers)
        )
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:  # the gains of the norms stay 1
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, mask=None, segments=None):
        """Read the tokens; what comes out of each knows about all the others that the mask shows it.

        tokens: (B, T) integers
        mask: boolean tensor that broadcasts to (B, T, T), True = may attend, like padding_mask(lengths, T); None = no mask
        segments: (B, T) integers, as in BertEmbeddings
        returns: (B, T, D)
        """
        x = self.embeddings(tokens, segments)
        for block in self.blocks:
            x = block(x, mask)
        return x


class MaskedLMHead(nn.Module):
    """From what the encoder knows about a token to a score for each word that could stand there.

    The output matrix is the token embedding itself (tied): a word scores high where the vector resembles its embedding.

    W: (D, D) weight and (D) bias, an nn.Linear
    norm: LayerNorm with eps = 1e-12
    bias: (V) one number a word
    """

    def __init__(self, d_model, vocab_size):
        """d_model: width D of a token; vocab_size: number of words V."""
        super().__init__()
        self.W = nn.Linear(d_model, d_model)
        self.norm = LayerNorm(d_model, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x, embedding):
        """norm(gelu(W x)), compared with every word's embedding.

        x: (B, T, D) what comes out of the encoder
        embedding: (V, D) the weight of the encoder's token embedding
        returns: (B, T, V) logits
        """
        return self.norm(gelu(self.W(x))) @ embedding.T + self.bias


def pool(x, mask=None, kind="mean"):
    """One vector for a whole sequence, out of one for each of its tokens.

    kind="cls":  the vector of the first token
    kind="mean": the mean over the tokens that the mask shows; zeros where it shows none

    x: (B, T, D) what comes out of the encoder
    mask: (B, 1, T) boolean tensor, True = a real token, as padding_mask gives it; None = all of them are
    returns: (B, D)
    Raises ValueError for another kind.

    >>> pool(torch.tensor([[[1.0, 2.0], [3.0, 6.0], [50.0, 70.0]]]), torch.tensor([[[True, True, False]]]))
    tensor([[2., 4.]])
    """
    if kind == "cls":
        return x[:, 0]
    if kind != "mean":
        raise ValueError(f'kind is "cls" or "mean"; got {kind!r}')
    if mask is None:
        return x.mean(1)
    real = mask.squeeze(1).unsqueeze(-1)  # (B, T, 1)
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp(min=1)


def finetune_head(bert, head, optimizer, tokens, labels, mask=None, freeze=False):
    """One step of fine-tuning: a classifier on top of a pre-trained encoder learns from labelled sequences.

    The head sees the mean of what comes out of the encoder, under the mask; the loss is the mean cross-entropy. With
    freeze=False all that learns runs in train mode. With freeze=True the encoder stays as it is: it runs in eval mode,
    and no gradient reaches it.

    bert: the encoder, called as bert(tokens, mask) -> (B, T, D)
    head: maps (B, D) to (B, C) logits, an nn.Linear(D, C) for instance
    optimizer: one of torch.optim, which holds the parameters of both
    tokens: (B, T) integers
    labels: (B) integers, the right class of each sequence
    mask: (B, 1, T) boolean tensor, True = a real token; None = all of them are
    returns: the loss before the step, a float
    """
    head.train()
    bert.train(not freeze)
    with torch.set_grad_enabled(not freeze):
        x = bert(tokens, mask)  # (B, T, D)
    logits = head(pool(x, mask))  # (B, C)
    loss = masked_lm_loss(logits, labels)  # one label a sequence, and none of them is -100
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
