"""What lessons draw and measure with."""

import matplotlib
import pytest
import torch
from torch import nn

matplotlib.use("agg")

from utils import measure, plots


def test_a_figure_has_the_size_that_was_asked_for_and_is_white():
    fig, _ = plots.figure(640, 320)
    assert (fig.get_size_inches() * fig.dpi).tolist() == [640, 320]
    assert fig.get_facecolor() == (1, 1, 1, 1)
    with pytest.raises(ValueError, match="at most 900"):
        plots.figure(901, 320)


@pytest.mark.parametrize("draw", [plots.attention_map, plots.mask_map])
@pytest.mark.parametrize(("T", "S"), [(3, 5), (1, 1), (60, 50)])
def test_a_map_carries_its_tokens(draw, T, S):
    ax = draw(torch.ones(T, S) / S, [f"q{t}" for t in range(T)], [f"k{s}" for s in range(S)], title="a claim")
    assert ax.get_yticklabels()[0].get_text() == "q0" and ax.get_xticklabels()[-1].get_text().startswith("k")
    assert ax.get_title(loc="left") == "a claim"


def test_an_attention_map_begins_at_0_even_where_all_weights_are():
    low, high = plots.attention_map(torch.zeros(2, 3)).images[0].get_clim()
    assert low == 0 < high


def test_a_recurrence_has_a_chain_as_long_as_its_input_and_a_product_has_not():
    linear, recurrent = nn.Linear(2, 2), nn.RNNCell(2, 2)

    def chain(T):
        state, x = torch.zeros(1, 2), torch.ones(T, 2)
        for t in range(T):
            state = recurrent(x[t : t + 1], state)
        return measure.longest_chain(state), measure.longest_chain(linear(x))

    (four, product), (eight, same) = chain(4), chain(8)
    assert product == same
    assert chain(12)[0] - eight == eight - four > 0


def test_the_memory_kept_for_a_product_is_that_of_its_factors():
    a, b = torch.zeros(10, 20, requires_grad=True), torch.zeros(20, 30, requires_grad=True)
    assert measure.bytes_kept(lambda: a @ b) == 4 * (10 * 20 + 20 * 30)
