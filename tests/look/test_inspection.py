"""A look into a model: shapes, names, and that the views are of the model as it really runs."""

from __future__ import annotations

import pytest
import torch
from sample_targets import translator
from tiny_runs import EIGHT, learned
from torch.testing import assert_close

import regard
from regard.api import Translator
from regard.api.inputs import check_text
from regard.errors import InputError
from regard.look.inspection import Inspection
from regard.nn import edit, record

SOURCE, TARGET, HEADS, LAYERS = 7, 6, 2, 2
KINDS = {"encoder": (SOURCE, SOURCE), "decoder": (TARGET, TARGET), "cross": (TARGET, SOURCE)}


@pytest.fixture(scope="module")
def seen() -> Inspection:
    return Inspection(translator(SOURCE, TARGET))


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_attention_agrees_with_the_fused_pass(seen: Inspection, kind: str) -> None:
    found = seen.attention(kind)
    assert found.shape == (LAYERS, HEADS, *KINDS[kind])
    assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    assert (found[..., ~seen.attention_mask(kind)] == 0).all()
    assert seen.difference < 1e-12


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_effective_attention_gives_every_head_the_same_output(seen: Inspection, kind: str, keep: bool) -> None:
    """Seven keys for values four wide: the weights are not identifiable, and what is left of them does the same."""
    raw, effective = seen.attention(kind), seen.effective_attention(kind, keep_row_sums=keep)
    with record(seen.look_target.model, "*.value") as recorded:
        seen.look_target.run()
    for layer, (name, module) in enumerate(seen.look_target.attentions(kind).items()):
        value = recorded[f"{name}.value"][0]
        for head in range(HEADS):
            carried = value[head] @ module.output.weight[:, head * module.d_value : (head + 1) * module.d_value].T
            assert_close(effective[layer, head] @ carried, raw[layer, head] @ carried, rtol=0, atol=1e-10)
    assert (effective[..., ~seen.attention_mask(kind)] == 0).all()
    assert not torch.allclose(effective, raw)
    if keep:
        assert_close(effective.sum(-1), torch.ones_like(raw[..., 0]))


@pytest.mark.parametrize("kind", KINDS)
def test_positions_added_to_values_are_part_of_transformed_values(kind: str) -> None:
    """Replacing the weights by effective ones changes nothing in the output of any attention, whatever the scheme."""
    seen = Inspection(translator(SOURCE, TARGET, positions="relative-values"))
    names = list(seen.look_target.attentions(kind))
    effective = seen.effective_attention(kind)
    assert not torch.allclose(effective, seen.attention(kind))
    for layer, name in enumerate(names):
        with record(seen.look_target.model, f"{name}.mixed", "*.weights") as recorded:
            seen.look_target.run()
        with (
            record(seen.look_target.model, f"{name}.mixed") as again,
            edit(seen.look_target.model, f"{name}.weights", lambda _, layer=layer: effective[layer][None]),
        ):
            seen.look_target.run()
        module = seen.look_target.attentions(kind)[name]
        assert_close(
            module.output(again[f"{name}.mixed"]), module.output(recorded[f"{name}.mixed"]), rtol=0, atol=1e-10
        )


def test_identifiability_counts_visible_keys(seen: Inspection) -> None:
    causal = seen.identifiability("decoder")
    assert causal.keys[0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert causal.rank[0, 0].tolist() == [1, 2, 3, 4, 4, 4]
    assert causal.null[0, 0].tolist() == [0, 0, 0, 0, 1, 2]
    assert (seen.identifiability("encoder").null == SOURCE - 4).all()
    assert (seen.identifiability("cross").null_fraction > 0).all()


def test_attribution_self_contribution_and_dominated_fraction(seen: Inspection) -> None:
    for stack, inputs, outputs in (("encoder", SOURCE, SOURCE), ("decoder", SOURCE + TARGET, TARGET)):
        last = seen.attribution(stack=stack)
        assert last.shape == (inputs, outputs)
        assert_close(last.sum(0), torch.ones_like(last[0]))
        assert_close(last, seen.attribution(LAYERS - 1, stack))
        own = seen.self_contribution(stack)
        assert own.shape == (LAYERS, outputs)
        assert_close(own[-1], last[inputs - outputs :].diagonal())
        most = last.argmax(0) != torch.arange(outputs) + inputs - outputs
        assert_close(seen.dominated_fraction(stack)[-1], most.double().mean())


def test_norms_rollout_flow_and_similarity(seen: Inspection) -> None:
    name, module = next(iter(seen.look_target.attentions("encoder").items()))
    with record(seen.look_target.model, f"{name}.value") as recorded:
        seen.look_target.run()
    carried = recorded[f"{name}.value"][0, 1] @ module.output.weight[:, module.d_value :].T
    assert_close(seen.norms()[0, 1], seen.attention()[0, 1] * carried.norm(dim=-1))
    assert seen.rollout().shape == (LAYERS, SOURCE, SOURCE)
    assert seen.rollout("decoder").shape == (LAYERS, TARGET, SOURCE + TARGET)
    assert seen.flow(0).shape == (SOURCE,)
    x, y = torch.randn(2, 8, dtype=torch.float64)
    query, key, _ = module.projection.weight.split(module.qkv_widths)
    width = module.d_key
    assert_close(x @ seen.similarity(0, 1).form @ y, (query[width:] @ x) @ (key[width:] @ y))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda seen: seen.attention("self"),
            "unknown kind of attention 'self'; known: encoder, decoder, cross",
        ),
        (lambda seen: seen.attribution(2), "layer 2: there are 2, counted from 0"),
        (lambda seen: seen.similarity(0, 9), "head 9: there are 2, counted from 0"),
        (lambda seen: seen.attribution(0, "top"), "this model has no top; it has: encoder, decoder"),
    ],
)
def test_unavailable_views_and_options_are_refused(seen: Inspection, ask: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(seen)
    assert str(caught.value) == message


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return regard.load(learned(tmp_path_factory.mktemp("look")), device="cpu")


def test_a_translator_is_examined_on_its_translation(model: Translator) -> None:
    source, target = EIGHT[0]
    seen, given = model.look(source), model.look(source, target)
    best = model.translate(source, attention=True)[0]
    assert seen.tokens["decoder"] == ["<sos>", *best.tokens[:-1]]
    assert seen.tokens["encoder"] == best.source_tokens
    assert_close(seen.attention("cross"), best.attention, rtol=0, atol=1e-5)
    assert_close(given.attention("cross"), seen.attention("cross"), rtol=0, atol=1e-5)
    assert seen.difference < 1e-4


def test_empty_and_long_texts_are_refused(model: Translator) -> None:
    with pytest.raises(InputError, match="the text is empty"):
        model.look("")
    with pytest.raises(InputError, match="tokens; this model takes at most 31"):
        model.look("1 " * 40)
    with pytest.raises(InputError, match="expected one text, a str, found list; look at several texts one by one"):
        check_text(["1", "2"])  # type: ignore[arg-type]
