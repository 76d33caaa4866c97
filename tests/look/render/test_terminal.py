"""In a terminal: nothing is too wide, darker is more, signs are seen, and what does not fit goes on below."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from sample_targets import one_stack, translator
from sample_view_data import make_view_data
from torch import Tensor

from regard.look.corpus.senses import WordOccurrence, WordSenses
from regard.look.inspection import Inspection
from regard.look.render import terminal
from regard.look.render.terminal import SHADES, render_text
from regard.look.views.registry import VIEWS
from regard.look.views.titles import ARRAY_DESCRIPTIONS
from regard.look.views.view_data import Axis, ViewArray, ViewData

TOKENS = [
    "▁the",
    "日本語のとても長い単語です",
    "e\u0301\u0301",
    "▁Donaudampfschifffahrtsgesellschaft",
    ",",
    "<0xE2>",
    "한",
    "ｗｉｄｅ",
]


def width(line: str) -> int:
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in line)


def one_map(values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> ViewData:
    axes = (Axis("layer"), Axis("head"), Axis("query", ("decoder",)), Axis("key", ("encoder",)))
    return ViewData(
        {"encoder": columns, "decoder": rows}, [ViewArray("attention", "cross", "weights", axes, values[None, None])]
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=70),
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=40),
    st.integers(40, 140),
)
def test_no_line_of_a_map_is_too_wide(rows: list[str], columns: list[str], columns_there: int) -> None:
    text = render_text(one_map(torch.rand(len(rows), len(columns)), rows, columns), columns_there)
    assert max(map(width, text.splitlines())) <= columns_there
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("columns", [40, 60, 80, 133])
def test_no_line_of_any_view_is_too_wide(columns: int) -> None:
    for data in (
        make_view_data(source=30, target=20, n_layers=3, n_heads=16),
        make_view_data(("decoder",), estimate=True),
    ):
        assert max(map(width, render_text(data, columns).splitlines())) <= columns


def test_sentences_of_the_summary_come_before_its_map() -> None:
    data = Inspection(one_stack("encoder", 4)).view_data("summary")
    lines = render_text(data, 400).splitlines()
    assert lines[:4] == [*data.notes["summary"], ""]
    assert lines[4].startswith("summary: importance of each input")
    gradients = render_text(Inspection(one_stack("encoder", 4)).view_data("gradients"), 400)
    assert gradients.splitlines()[-1].startswith("integrated gradients sum to ")


def test_darker_cells_are_larger_and_signs_are_shown() -> None:
    values = torch.tensor([[1.0, 0.5, 0.25, 0.0], [-1.0, -0.5, -0.25, -0.01]])
    text = render_text(one_map(values, ["above", "below"], list("abcd")), 80)
    above, below = (line for line in text.splitlines() if line.startswith(("above", "below")))
    assert above == f"above  {SHADES[4] * 2} {SHADES[2] * 2} {SHADES[1] * 2}"
    assert below == f"below -{SHADES[4] * 2}-{SHADES[2] * 2}-{SHADES[1] * 2}"
    assert f"{SHADES[4] * 2} 0.8 to 1, - below zero" in text
    assert "below zero" not in render_text(one_map(values[:1], ["above"], list("abcd")), 80)


def test_names_stand_upright_over_their_columns() -> None:
    lines = render_text(one_map(torch.eye(3), ["x", "y", "z"], ["ab", "e\u0301日", "c"]), 80).splitlines()
    assert lines[0] == "cross attention: weights, layer 0, head 0"
    assert lines[2:4] == ["   a  e\u0301", "   b  日 c"]
    assert lines[4:7] == ["x  ██", "y     ██", "z        ██"]


def test_long_names_over_columns_are_cut_short() -> None:
    letters = "e\u0301" * 8
    lines = render_text(
        one_map(torch.eye(3), ["x", "y", "z"], ["<|endoftext|>", letters, letters + "z"]), 80
    ).splitlines()
    heading = lines[2 : lines.index("x  ██")]
    assert "".join(line[3] for line in heading) == "<|endof…"
    assert sum(line.count("e\u0301") for line in heading) == 8 + 7
    assert heading[-1].endswith("…")
    assert len(heading) == 8


def test_columns_of_sentences_have_their_numbers_alone() -> None:
    names = [f"{number} the bank of the river" for number in range(1, 12)]
    lines = render_text(one_map(torch.ones(11, 11), names, names), 80).splitlines()
    assert [line.split() for line in lines[2:4]] == [["1", "1"], [*"123456789", *"01"]]
    assert lines[4].startswith("1 the bank of")
    lines = render_text(one_map(torch.ones(1, 2), ["x"], ["1 a", "3 b"]), 80).splitlines()
    assert [line.split() for line in lines[2:5]] == [["1", "3"], [], ["a", "b"]], "not the numbers of the columns"


def test_sentences_of_a_word_are_numbered_in_its_map_and_listed_below() -> None:
    texts = ["they sat on the bank of the river", "the bank lends money to them"]
    found = WordSenses("bank", [WordOccurrence(text, text, torch.randn(2, 4)) for text in texts])
    lines = render_text(found.view_data(), 80).splitlines()
    assert lines[2].split() == ["1", "2"]
    assert lines[3].startswith("1 they sat")
    assert lines[-2:] == [f"1: {texts[0]}", f"2: {texts[1]}"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("attention", "rows: query (decoder); columns: key (encoder)"),
        ("attribution", "rows: output (decoder); columns: input (encoder, then decoder)"),
        ("gradients", "rows: output (decoder); columns: input (encoder, then decoder)"),
        ("rollout", "rows: output (decoder); columns: input (encoder, then decoder)"),
    ],
)
def test_a_map_says_what_is_down_and_across(view: str, expected: str) -> None:
    data = make_view_data(source=5, target=4)
    chosen = next(each for each in reversed(list(data.arrays_of(view))) if len(each.axes) > 1 and each.axes[-2].over)
    assert render_text(ViewData(data.sides, [chosen]), 80).splitlines()[1] == f"  {expected}"


def test_a_side_that_is_an_axis_is_said_once() -> None:
    axes = (Axis("text", ("text",)), Axis("pair", ("pair",)))
    match = ViewArray("match", "", "evidence", axes, torch.rand(2, 3))
    lines = render_text(ViewData({"text": ["a", "b"], "pair": ["c", "d", "e"]}, [match]), 80).splitlines()
    assert lines[1] == "  rows: text; columns: pair"


def test_more_columns_than_fit_go_on_below() -> None:
    n_columns, wide = 50, 40
    text = render_text(one_map(torch.ones(2, n_columns), ["one", "two"], ["t"] * n_columns), wide)
    for row in ("one", "two"):
        parts = [line for line in text.splitlines() if line.startswith(row)]
        assert len(parts) > 1
        assert sum(part.count("██") for part in parts) == n_columns
    assert text.count("██ 0.8") == 1


def test_a_map_of_many_rows_says_what_is_left_out() -> None:
    text = render_text(one_map(torch.ones(75, 2), ["row"] * 75, ["a", "b"]), 80)
    assert sum(line.startswith("row") for line in text.splitlines()) == 60
    assert "... 15 more rows; --out F.html shows all" in text


def bars(values: Sequence[float], name: str = "weights", columns: int = 80, view: str = "pooling") -> list[str]:
    """The lines of one number for each token, without the title."""
    array = ViewArray(view, "", name, (Axis("input", ("encoder",)),), torch.tensor(values))
    names = [f"t{number}" for number in range(len(values))]
    return render_text(ViewData({"encoder": names}, [array]), columns).splitlines()[1:]


def test_bars_go_both_ways_from_zero_and_their_numbers_have_the_sign() -> None:
    lines = bars([0.4, -0.2, 0.0, -0.8])
    assert [float(line.split()[1]) for line in lines] == [0.4, -0.2, 0.0, -0.8]
    zero = {line.index("│") for line in lines}
    assert len(zero) == 1
    left, right = zip(*(line[line.index(line.split()[1]) + 5 :].split("│") for line in lines), strict=True)
    assert [side.count("█") for side in left] == [0, 5, 0, 20]
    assert [side.count("█") for side in right] == [10, 0, 0, 0]
    assert all(side.endswith("█") for side in left if "█" in side), "a bar begins at zero"
    assert not any("│" in line for line in bars([0.4, 0.2]))
    assert max(map(len, bars([1.0, -1.0], columns=30))) <= 30


def test_legend_names_masked_cells_only_where_there_are_some() -> None:
    assert "masked" not in terminal._shade_legend(1.0, signed=False)
    assert terminal._shade_legend(1.0, signed=True, masked=True).endswith(", - below zero, ·· masked")


def test_a_number_that_rounds_to_zero_has_no_sign() -> None:
    lines = bars([0.4, -0.0001, -0.2])
    assert [line.split()[1].rstrip("│█") for line in lines] == ["0.400", "0.000", "-0.200"]


def test_the_largest_bar_is_full_and_fractions_are_of_1() -> None:
    assert [line.count("█") for line in bars([0.02, 0.01, 0.04])] == [10, 5, 20]
    assert [line.count("█") for line in bars([0.25, 0.5], "dominated_fraction", view="attribution")] == [5, 10]
    assert [line.count("█") for line in bars([0.0, 0.0])] == [0, 0]
    assert bars([0.003])[0].count("█") == 0, "one number alone is compared with nothing"


def test_fraction_scale_does_not_depend_on_the_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARRAY_DESCRIPTIONS, "attribution.dominated_fraction", "tokens of which another input has more")
    assert [line.count("█") for line in bars([0.25, 0.5], "dominated_fraction", view="attribution")] == [5, 10]
    assert [line.count("█") for line in bars([0.25, 0.5], view="shared")] == [10, 20]


def test_small_numbers_keep_their_digits() -> None:
    assert [float(line.split()[1]) for line in bars([2.5e-5, -1e-6])] == [2.5e-5, -1e-6]


def test_titles_name_averaged_axes() -> None:
    seen = Inspection(translator(5, 4))
    title = render_text(seen.view_data("attention", kind="cross"), 80).splitlines()[0]
    assert title == "cross attention: weights, mean of 2 layers and 2 heads"
    title = render_text(seen.view_data("attention", kind="cross", layer=-1), 80).splitlines()[0]
    assert title == "cross attention: weights, layer 1, mean of 2 heads"
    title = render_text(seen.view_data("attribution", kind="encoder"), 80).splitlines()[0]
    assert title == "encoder attribution: contribution of each input to each output, layer 1"


def test_map_is_the_mean_over_heads_or_the_last_layer() -> None:
    weights = torch.zeros(2, 2, 2, 2)
    weights[0, 0, 0, 1] = weights[1, 0, 1, 0] = 1.0  # both at 1/4 of the mean over layers and heads
    axes = (Axis("layer"), Axis("head"), Axis("query", ("encoder",)), Axis("key", ("encoder",)))
    sides = {"encoder": ["x", "y"]}
    text = render_text(ViewData(sides, [ViewArray("attention", "encoder", "weights", axes, weights)]), 80)
    assert "x     ██\ny  ██\n" in text
    assert "to 0.25" in text
    axes = (Axis("layer"), Axis("input", ("encoder",)), Axis("output", ("encoder",)))
    text = render_text(ViewData(sides, [ViewArray("attribution", "encoder", "contribution", axes, weights[0])]), 80)
    assert "x\ny\n" in text  # layer 1 is empty
    text = render_text(ViewData(sides, [ViewArray("attribution", "encoder", "contribution", axes, weights[:, 0])]), 80)
    assert "x     ██\ny\n" in text  # input 1 of layer 1 gave to output 0: outputs are rows


def test_numbers_of_heads_are_a_table_and_one_line_where_all_are_the_same() -> None:
    seen = Inspection(translator(7, 6))
    lines = render_text(seen.view_data("identifiability", kind="encoder"), 80).splitlines()
    assert "encoder identifiability: keys per query, at most: 7 in every head" in lines
    assert "encoder identifiability: rank of the values: 4 in every head" in lines
    start = lines.index("encoder identifiability: fraction of the norm of the weights without effect")
    assert lines[start + 1].split() == ["head", "0", "head", "1"]
    null_fraction = seen.identifiability("encoder").null_fraction.mean(-1)
    for layer, line in enumerate(lines[start + 2 : start + 4]):
        assert line.split() == ["layer", str(layer), *(f"{float(value):.3f}" for value in null_fraction[layer])]
    lines = render_text(seen.view_data("identifiability", kind="encoder", layer=-1, head=0), 80).splitlines()
    assert f"without effect: {float(null_fraction[1, 0]):.3g} in layer 1, head 0" in " ".join(lines)


def test_a_form_is_shown_in_part() -> None:
    seen = Inspection(translator(3, 2))
    text = render_text(seen.view_data("similarity", kind="encoder", layer=-1, head=0), 30)
    assert "encoder similarity: the bilinear form M of x M y, some of 8 columns" in " ".join(text.split())
    form = seen.similarity(1, 0, "encoder").form
    first = next(line for line in text.splitlines() if line.startswith("0 "))
    limit = form[:, [0, 2, 5, 7]].abs().max()  # as many columns as fit: 4 of 8
    assert ("-" in first) == bool((form[0, [0, 2, 5, 7]] < -limit / 5).any())


@pytest.mark.parametrize("n_heads", [20, 21, 22, 23, 24])
def test_many_heads_go_on_below(n_heads: int) -> None:
    values = torch.arange(2 * n_heads).reshape(2, n_heads)
    data = ViewData(
        {}, [ViewArray("similarity", "encoder", "symmetric_fraction", (Axis("layer"), Axis("head")), values)]
    )
    lines = render_text(data, 60).splitlines()
    for layer in range(2):
        numbers = [number for line in lines if line.startswith(f"layer {layer}") for number in line.split()[2:]]
        assert list(map(int, numbers)) == values[layer].tolist()


def test_every_view_of_every_model_is_drawn_with_what_it_says() -> None:
    for subject in (translator(2, 1, n_layers=1, n_decoder_layers=1), one_stack("decoder", 1)):
        data = Inspection(subject).view_data("all")
        text = render_text(data, 200)
        assert all(f"{view}: " in text for view in VIEWS if view != "pooling")
        assert all(note in text.replace("\n", " ") for notes in data.notes.values() for note in notes)


def test_bars_of_a_small_convergence_delta_are_short() -> None:
    output = Axis("output", labels=("positive", "negative"))
    delta = ViewArray("gradients", "", "convergence_delta", (output,), torch.tensor([0.0032, 0.0021]))
    assert "█" not in render_text(ViewData({}, [delta]), 80), "0.0032 is small against a log-probability of 1"
    large = ViewArray("gradients", "", "convergence_delta", (output,), torch.tensor([2.0, 1.0]))
    bars = [line.count("█") for line in render_text(ViewData({}, [large]), 80).splitlines() if "█" in line]
    assert bars == [20, 10]


def test_rows_of_a_decoder_are_labelled_by_the_tokens_read_and_written() -> None:
    axes = (Axis("query", ("decoder",), predicts_next=True), Axis("key", ("encoder",)))
    weights = ViewArray("attention", "cross", "weights", axes, torch.eye(2))
    data = ViewData(
        {"encoder": ["▁the", "▁kilograms"], "decoder": ["<sos>", "▁kilogrammes"]},
        [weights],
        next_tokens={"decoder": ["▁kilogrammes", "<eos>"]},
    )
    lines = render_text(data, 80).splitlines()
    assert any(line.startswith("<sos> → ▁kilogrammes ") for line in lines)
    assert any(line.startswith("▁kilogrammes → <eos> ") for line in lines)
