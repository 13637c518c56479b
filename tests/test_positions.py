"""Module 03 against what others compute, and against what is promised: scores that know the distance and nothing else."""

import math

import pytest
import torch

from autograder.alternatives import positions as alternatives
from autograder.exercises import positions as exercises
from solutions import positions
from solutions.attention import attention_scores, causal_mask

BUCKETS = [(32, 128), (12, 20), (10, 40), (64, 256), (16, 100)]


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def bucket_oracle(offset, bidirectional, n_buckets, max_distance):
    """The bucket of one distance in whole numbers: the last one whose beginning is not further away."""
    n = n_buckets // 2 if bidirectional else n_buckets
    distance = abs(offset) if bidirectional else max(-offset, 0)
    exact = n // 2
    upper = n if bidirectional and offset > 0 else 0
    if distance < exact:
        return upper + distance
    far = n - exact  # bucket exact + j begins at exact · (max_distance / exact)^(j / far); both sides to the power of far:
    begun = [j for j in range(far) if distance**far * exact**j >= exact**far * max_distance**j]
    return upper + exact + begun[-1]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), BUCKETS)
def test_buckets_are_those_of_whole_numbers(bidirectional, n_buckets, max_distance):
    offsets = range(-300, 301)
    found = positions.relative_position_bucket(torch.tensor(offsets), bidirectional, n_buckets, max_distance).tolist()
    assert found == [bucket_oracle(offset, bidirectional, n_buckets, max_distance) for offset in offsets]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), BUCKETS)
def test_buckets_are_those_of_t5(bidirectional, n_buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="transformers is not installed")
    offsets = torch.arange(-5000, 5001)
    theirs = t5.T5Attention._relative_position_bucket(offsets, bidirectional, n_buckets, max_distance)
    assert torch.equal(positions.relative_position_bucket(offsets, bidirectional, n_buckets, max_distance), theirs)


def test_rope_in_halves_is_that_of_llama():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is not installed")
    q, k = draw(2, 3, 5, 8), draw(2, 3, 5, 8, seed=1)
    where = torch.tensor([4, 5, 6, 90, 91])
    angles = torch.cat([positions.rope_angles(where, 8)] * 2, dim=-1)[None]
    theirs = llama.apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    for mine, right in zip((q, k), theirs):
        torch.testing.assert_close(positions.apply_rope(mine, where, style="halves"), right)


@pytest.mark.parametrize("style", ["interleaved", "halves"])
def test_a_score_depends_on_the_difference_alone(style):
    q, k = draw(3, 7, 8), draw(3, 7, 8, seed=1)
    where = torch.tensor([0, 1, 2, 5, 9, 40, 41])
    near = attention_scores(positions.apply_rope(q, where, style=style), positions.apply_rope(k, where, style=style))
    far = attention_scores(positions.apply_rope(q, where + 1000, style=style), positions.apply_rope(k, where + 1000, style=style))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-11)
    assert not torch.allclose(near, attention_scores(q, k), atol=0.1)


@pytest.mark.parametrize("style", ["interleaved", "halves"])
def test_turning_changes_no_length_and_turns_back(style):
    x, where = draw(2, 5, 6), torch.arange(5) * 7
    turned = positions.apply_rope(x, where, style=style)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(positions.apply_rope(turned, -where, style=style), x)


def test_permuted_weights_give_the_same_scores_in_the_other_pairing():
    n_heads, K, D = 3, 8, 10
    x, W_Q, W_K, where = draw(2, 5, D), draw(n_heads * K, D, seed=1), draw(n_heads * K, D, seed=2), torch.arange(5)

    def scores(W_Q, W_K, style):
        q, k = ((x @ W.T).unflatten(-1, (n_heads, K)).transpose(1, 2) for W in (W_Q, W_K))  # (B, H, T, K)
        return attention_scores(positions.apply_rope(q, where, style=style), positions.apply_rope(k, where, style=style))

    permuted = positions.permute_qk(W_Q, n_heads), positions.permute_qk(W_K, n_heads)
    torch.testing.assert_close(scores(*permuted, "halves"), scores(W_Q, W_K, "interleaved"))
    assert not torch.allclose(scores(W_Q, W_K, "halves"), scores(W_Q, W_K, "interleaved"))


def test_rotary_attention_knows_the_order_and_not_the_place():
    torch.manual_seed(0)
    layer, x, mask = positions.RotaryAttention(12, 2).double(), draw(2, 5, 12), causal_mask(5)
    here, weights = layer(x, mask=mask)
    torch.testing.assert_close(layer(x, torch.arange(5) + 500, mask)[0], here)
    assert not torch.allclose(layer(x.flip(1))[0].flip(1), layer(x)[0])
    assert weights.shape == (2, 2, 5, 5) and not weights.triu(1).any()


def test_one_step_further_is_one_rotation_of_every_sinusoid():
    encoding = positions.sinusoidal_encoding(50, 16)
    turned = positions.apply_rope(encoding[:-7], torch.tensor([-7]))  # a sine comes before its cosine: it turns the other way
    torch.testing.assert_close(turned, encoding[7:], rtol=0, atol=1e-5)


def test_half_precision_keeps_distant_positions_apart():
    x = torch.ones(1, 8, dtype=torch.bfloat16)
    one, next_one = (positions.apply_rope(x, torch.tensor([t])) for t in (3001, 3002))  # in bfloat16 both would be 3008
    assert not torch.equal(one, next_one)


def test_alibi_has_the_published_slopes():
    assert (-positions.alibi_bias(8, 2)[:, 1, 0]).tolist() == [2.0**-h for h in range(1, 9)]
    assert (-positions.alibi_bias(16, 2)[:, 1, 0]).tolist() == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])
    row = positions.alibi_bias(8, 300)[0, -1]
    assert math.isclose(row.exp().sum(), 1 / (1 - math.exp(-0.5)), rel_tol=1e-5)  # a geometric series


def test_every_exercise_has_answers_in_other_styles():
    styles = [name for name, _, _ in alternatives.ALTERNATIVES]
    assert all(styles.count(exercise.name) >= 3 for exercise in exercises.MODULE.exercises)
    assert set(styles) == {exercise.name for exercise in exercises.MODULE.exercises}
