"""The viewer on recurrent models: attention as it was, effective attention, derivatives; without any, one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrent import SHAPES, language_model, randomise_weights, translator
from sentences import VOCABULARY
from torch import Tensor
from torch.testing import assert_close

from regard.data.batches import SegmentedRows, sentences_to_rows
from regard.errors import InputError
from regard.look.compute.jvp import record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.look.render.page import render_page
from regard.look.render.terminal import render_text
from regard.models.recurrent.config import RecurrentEncoderConfig
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.nn import Linear, record
from regard.text.subwords import Word

SOURCE, TARGET, WRITTEN = [3, 4, 5, 6, 7, 2], [1, 3, 4, 5], [3, 4, 5, 2]


def named(shape: dict[str, Any]) -> str:
    return "-".join(str(value) for value in shape.values())


def side(ids: list[int], entrance: str) -> Side:
    return Side([f"t{i}" for i in ids], [Word(f"t{i}", (place,)) for place, i in enumerate(ids)], entrance)


def subject(source: list[int] = SOURCE, **shape: Any) -> LookTarget:
    model = translator(**shape).eval()
    read, target = sentences_to_rows([source], pad_id=0), sentences_to_rows([TARGET], pad_id=0)
    sides = {"encoder": side(source, "source_embedding.out"), "decoder": side(TARGET, "target_embedding.out")}
    body = lambda: model.hidden_states(read, target)  # noqa: E731
    return LookTarget(model, sides, run_layers=body, head=model.logits, predicted_ids=torch.tensor(WRITTEN))


@pytest.mark.parametrize("attention", ["additive", "dot", "general", "scaled"])
@pytest.mark.parametrize("feeding", [False, True])
def test_attention_equals_stepwise_decoding(attention: str, feeding: bool) -> None:
    found = subject(attention=attention, input_feeding=feeding)
    seen, model = Inspection(found), found.model
    weights = seen.attention("cross")
    assert weights.shape == (1, 1, 4, 6)
    assert_close(weights.sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))
    state = model.start(sentences_to_rows([SOURCE], pad_id=0))
    for place, token in enumerate(TARGET):
        with record(model, "*.cross_attention.weights") as recorded:
            model.step(torch.tensor([token]), state)
        assert_close(next(iter(recorded.values()))[0, :, 0], weights[0, :, place])
    assert seen.difference < 1e-12
    assert seen.kinds == ["cross"]


@pytest.mark.parametrize("attention", ["dot", "scaled"])
def test_effective_attention_keeps_the_output(attention: str) -> None:
    long = [3, 4, 5, 6, 7, 8, 9, 10, 11, 3, 5, 2]
    found = subject(long, attention=attention, directions="both", d_model=8)
    seen = Inspection(found)
    (module,) = found.attentions("cross").values()
    with torch.no_grad(), record(found.model, "*.value") as recorded:
        found.run()
    carried = next(iter(recorded.values()))[0, 0] @ module.output.weight.T
    raw, effective = seen.attention("cross")[0, 0], seen.effective_attention("cross")[0, 0]
    assert_close(raw @ carried, effective @ carried)
    about = seen.identifiability("cross")
    assert int(about.rank.max()) == int(torch.linalg.matrix_rank(carried)) <= 8
    assert int(about.null.min()) == 12 - int(about.rank.max()) > 0
    assert effective.norm() < raw.norm()
    assert_close(seen.norms("cross")[0, 0], raw * carried.norm(dim=-1))


@pytest.mark.parametrize("shape", SHAPES[:5], ids=named)
def test_attribution_is_the_norm_of_the_jacobian(shape: dict[str, Any]) -> None:
    found = subject(**shape)
    inputs = record_inputs(found)

    def last(source: Tensor, target: Tensor) -> Tensor:
        with (
            replace_inputs(found, {"encoder": source, "decoder": target}),
            record(found.model, "decoder.1.out") as recorded,
        ):
            found.run_layers()
        return recorded["decoder.1.out"][0]

    blocks = torch.autograd.functional.jacobian(last, (inputs["encoder"], inputs["decoder"]))
    norms = torch.cat([block[:, :, 0].square().sum((1, 3)).sqrt() for block in blocks], 1).T  # (inputs, T)
    assert_close(Inspection(found).attribution(stack="decoder"), norms / norms.sum(0))
    contributions = Inspection(found).attribution(stack="decoder")
    assert not contributions[6:].tril(-1).any()  # a target token is in nothing that is written before it


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_every_available_view_renders(shape: dict[str, Any]) -> None:
    seen = Inspection(subject(**shape))
    data = seen.view_data("all")
    views = {array.view for array in data.arrays}
    assert {"attribution", "gradients", "faithfulness"} <= views
    assert ({"attention", "effective", "norms", "identifiability"} <= views) == (shape["attention"] != "none")
    assert ("similarity" in views) == (shape["attention"] in ("general", "scaled"))
    assert "rollout" not in views
    assert float(seen.gradients().convergence_delta.max()) < 1e-3
    assert "attribution" in render_text(data, 80)
    assert "<script>" in render_page(data)
    assert "random" in seen.faithfulness().methods


def test_integrated_gradients_sum_to_the_change() -> None:
    found = subject(attention="additive")
    nothing = {name: torch.zeros_like(x) for name, x in record_inputs(found).items()}
    with torch.no_grad(), replace_inputs(found, nothing):
        before = found.explained_outputs()
    with torch.no_grad():
        after = found.explained_outputs()
    assert_close(Inspection(found).gradients().integrated_gradients.sum(0), after - before, rtol=0, atol=1e-3)


def test_models_without_attention_say_so_in_one_line() -> None:
    seen = Inspection(subject(attention="none"))
    assert seen.kinds == []
    no_token = "this model has nothing to show for --view attention: it has no attention between tokens"
    with pytest.raises(InputError, match=f"^{no_token}; look at: summary, attribution, gradients, faithfulness$"):
        seen.view_data("attention")
    with pytest.raises(InputError, match=r"^gradients has no layer to choose; leave it out, or look at: attribution$"):
        seen.view_data("gradients", layer=0)
    with pytest.raises(InputError, match=r"^this model has no cross attention; it has: none$"):
        seen.view_data("attention", kind="cross")
    with pytest.raises(InputError, match="it has no self-attention"):
        Inspection(subject(attention="dot")).view_data("rollout")
    with pytest.raises(InputError, match="cross attention does not score by a bilinear form"):
        Inspection(subject(attention="additive")).similarity(0, 0, "cross")
    assert len(seen.view_data("attribution", kind="encoder").arrays) == 3


def test_a_reader_and_a_language_model() -> None:
    config = RecurrentEncoderConfig(preset="tiny", d_model=8, n_layers=2, dropout=0.0)
    reader = randomise_weights(RecurrentEncoder(config, VOCABULARY, {"tags": Linear(8, 3)}), 0).eval()
    rows = sentences_to_rows([SOURCE], pad_id=0)
    segmented = SegmentedRows(rows.ids, rows.segment, rows.position, torch.zeros_like(rows.ids))
    tagged = LookTarget(
        reader,
        {"encoder": side(SOURCE, "embedding.out")},
        run_layers=lambda: reader(segmented),
        head=reader.heads["tags"],
        predicted_ids=torch.tensor([0, 1, 2, 0, 1, 2]),
    )
    seen = Inspection(tagged)
    assert {array.view for array in seen.view_data("all").arrays} == {
        "summary",
        "attribution",
        "gradients",
        "faithfulness",
    }
    assert (seen.attribution() > 0).all()  # both directions: every token is in every other
    writer = language_model().eval()
    written = LookTarget(
        writer,
        {"decoder": side(SOURCE, "embedding.out")},
        run_layers=lambda: writer.hidden_states(rows),
        head=writer.logits,
        predicted_ids=torch.tensor([*SOURCE[1:], 2]),
    )
    contributions = Inspection(written).attribution(stack="decoder")
    assert not contributions.tril(-1).any()
    assert (contributions.triu() > 0).sum() == 21


def test_default_view_is_the_same_in_a_file_and_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attention where there is any, else the pooling by it, else gradients."""
    attending, without = subject(attention="dot"), subject(attention="none")
    pooled = replace(without, hops=lambda: torch.full((1, len(SOURCE) + len(TARGET)), 0.1))
    for looked, view in ((attending, "attention"), (pooled, "pooling"), (without, "gradients")):
        seen = Inspection(looked)
        assert (seen.default_view(), seen.default_view("look.csv"), seen.default_view("look.html")) == (
            view,
            view,
            "all",
        )
        assert seen.save(tmp_path / "look.csv").read_text().splitlines()[1].startswith(f"{view},")
        seen.show()
        assert capsys.readouterr().out == render_text(seen.view_data(view)) + "\n"
        assert seen._repr_html_()
    with pytest.raises(InputError, match=r"one of: summary, attribution, gradients, faithfulness, or write look.html$"):
        Inspection(without).save(tmp_path / "look.svg", "all")
    with pytest.raises(InputError, match=r"tokens; look at: summary, attribution, gradients, faithfulness, pooling$"):
        Inspection(pooled).view_data("attention")


def test_figures_are_written(tmp_path: Path) -> None:
    seen = Inspection(subject(attention="dot"))
    for name in ("look.html", "look.json", "look.csv"):
        assert seen.save(tmp_path / name).stat().st_size > 1000
