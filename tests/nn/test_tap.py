"""Taps: recording and editing activations, and leaving no hooks behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
import torch
from reference import one_sentence, random_positions
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from regard.nn import (
    EncoderLayer,
    EncoderStack,
    FeedForward,
    MultiHeadAttention,
    PreNorm,
    Tap,
    edit,
    make_mask,
    record,
    taps,
)
from regard.nn.kernels import dispatch

D, H = 8, 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = EncoderStack(
            EncoderLayer(MultiHeadAttention(D, H), FeedForward(D, 16, F.relu), partial(PreNorm, D, 0.0)) for _ in "ab"
        )
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        packed = one_sentence(*x.shape[:2])
        return self.encoder(x, make_mask(packed, packed))


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 5, D, dtype=torch.float64)


def active_taps(model: nn.Module) -> list[str]:
    return [name for name, tap in taps(model).items() if tap.active]


def test_tap_names_are_module_paths_in_model_order(model: Model) -> None:
    names = ("scores", "masked_scores", "weights", "query", "key", "value", "mixed")
    parts = [*(f"attention.{name}" for name in names), "out"]
    assert list(taps(model)) == [f"encoder.{i}.{part}" for i in (0, 1) for part in parts]
    assert list(taps(model, "encoder.*.attention.weights")) == [
        "encoder.0.attention.weights",
        "encoder.1.attention.weights",
    ]


def test_recording_changes_no_output_and_leaves_no_hooks(model: Model, x: Tensor) -> None:
    before = model(x)
    with record(model, "*") as recorded:
        during = model(x)
    assert_close(during, before, rtol=1e-12, atol=1e-13)
    assert sorted(recorded) == sorted(taps(model))
    assert active_taps(model) == []
    assert torch.equal(model(x), before)


def test_record_keeps_the_latest_activation(model: Model, x: Tensor) -> None:
    with record(model, "encoder.1.out") as recorded:
        model(x)
        last = model(2 * x)
    assert list(recorded) == ["encoder.1.out"]
    assert torch.equal(recorded["encoder.1.out"], last)


def test_several_patterns_may_overlap(model: Model, x: Tensor) -> None:
    with record(model, "encoder.0.*", "*.weights") as recorded:
        model(x)
    assert len(recorded) == 9
    assert {"encoder.0.attention.weights", "encoder.1.attention.weights"} <= set(recorded)


def test_only_attention_with_an_active_tap_computes_weights(model: Model, x: Tensor) -> None:
    with record(model, "encoder.0.attention.weights") as recorded:
        model(x)
        assert active_taps(model) == ["encoder.0.attention.weights"]
    assert list(recorded) == ["encoder.0.attention.weights"]
    assert recorded["encoder.0.attention.weights"].shape == (2, H, 5, 5)


def test_gradients_flow_to_recorded_activations(model: Model, x: Tensor) -> None:
    with record(model, "encoder.0.attention.weights") as recorded:
        out = model(x)
    (gradient,) = torch.autograd.grad(out.sum(), recorded["encoder.0.attention.weights"])
    assert gradient.abs().sum() > 0


def test_uniform_weights_give_the_mean_of_the_values(model: Model, x: Tensor) -> None:
    attention, packed = model.encoder[0].attention, one_sentence(2, 5)
    with (
        edit(attention, "weights", lambda weights: torch.full_like(weights, 1 / 5)),
        record(attention, "value") as seen,
    ):
        out = attention(x, make_mask(packed, packed))
    mean = seen["value"].mean(2).flatten(1)  # (B, H E)
    expected = attention.output(mean)[:, None].expand_as(out)
    assert_close(out, expected, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(attention(x, make_mask(packed, packed)), out)


def test_one_hot_weights_copy_a_value(model: Model, x: Tensor) -> None:
    attention, packed = model.encoder[0].attention, one_sentence(2, 5)
    only_last = torch.zeros(5).double().index_fill(0, torch.tensor(4), 1.0)
    with edit(attention, "weights", lambda weights: only_last.expand_as(weights)), record(attention, "value") as seen:
        out = attention(x, make_mask(packed, packed))
    expected = attention.output(seen["value"][:, :, 4].flatten(1))
    assert_close(out, expected[:, None].expand_as(out), rtol=1e-12, atol=1e-13)


def test_editing_an_early_layer_changes_later_ones(model: Model, x: Tensor) -> None:
    replaced = torch.randn_like(x)
    with edit(model, "encoder.0.out", lambda _: replaced):
        out = model(x)
    packed = one_sentence(2, 5)
    assert torch.equal(out, model.encoder[1](replaced, make_mask(packed, packed)))


def test_record_inside_edit_sees_edited_values(model: Model, x: Tensor) -> None:
    with edit(model, "encoder.0.attention.value", torch.zeros_like), record(model, "*.value") as recorded:
        model(x)
    assert (recorded["encoder.0.attention.value"] == 0).all()
    assert (recorded["encoder.1.attention.value"] != 0).any()


def test_nested_edits_apply_outer_first(model: Model, x: Tensor) -> None:
    plain = model(x)
    with edit(model, "encoder.1.out", lambda x: x + 1), edit(model, "encoder.1.out", lambda x: x * 2):
        assert_close(model(x), (plain + 1) * 2, rtol=1e-12, atol=1e-13)
    assert torch.equal(model(x), plain)


def test_unknown_pattern_lists_the_taps(model: Model) -> None:
    with pytest.raises(
        LookupError, match=r"no tap matches 'enc\.\*'; this model has: encoder\.0\.attention\.scores, "
    ) as error:
        taps(model, "enc.*")
    assert "encoder.1.out" in str(error.value)
    with (
        pytest.raises(LookupError, match="no tap matches 'weights'; this model has: none"),
        record(nn.Linear(2, 2), "weights"),
    ):
        pass


def test_unknown_pattern_leaves_no_hooks(model: Model) -> None:
    with pytest.raises(LookupError), record(model, "*.weights", "nonsense"):
        pass
    with pytest.raises(LookupError), edit(model, "nonsense", torch.zeros_like):
        pass
    assert active_taps(model) == []


@pytest.mark.parametrize("context", [lambda m: record(m, "*"), lambda m: edit(m, "*", torch.zeros_like)])
def test_exception_leaves_no_hooks(model: Model, context: object) -> None:
    def fail() -> None:
        assert len(active_taps(model)) == 16
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), context(model):
        fail()
    assert active_taps(model) == []


def test_failing_edit_leaves_no_hooks(model: Model, x: Tensor) -> None:
    before = model(x)
    with pytest.raises(RuntimeError), edit(model, "*.weights", lambda weights: weights @ weights.new_zeros(3, 3)):
        model(x)
    assert active_taps(model) == []
    assert torch.equal(model(x), before)


def test_nested_records_are_independent(model: Model, x: Tensor) -> None:
    with record(model, "*.weights") as outer:
        with record(model, "*.weights") as inner:
            model(x)
        assert active_taps(model) != []
        assert set(outer) == set(inner)
        model(2 * x)
    assert not torch.equal(outer["encoder.0.attention.weights"], inner["encoder.0.attention.weights"])
    assert active_taps(model) == []


def test_recorded_weights_of_fully_masked_queries_are_zero(model: Model) -> None:
    packed = random_positions(6, 3, 12)
    with record(model, "*.weights") as recorded:
        model.encoder(torch.randn(3, 12, D, dtype=torch.float64), make_mask(packed, packed, causal=True))
    for weights in recorded.values():
        assert (weights.transpose(1, 2)[packed.segment == 0] == 0).all()


def test_a_tap_is_the_identity(x: Tensor) -> None:
    assert Tap()(x) is x
    assert not Tap().active


def in_other_thread(function: Callable[..., Any], *arguments: object) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def test_another_thread_is_neither_recorded_nor_edited(model: Model, x: Tensor) -> None:
    plain = model(x)
    with record(model, "*") as recorded, edit(model, "encoder.0.out", torch.zeros_like):
        assert torch.equal(in_other_thread(model, x), plain)
        assert in_other_thread(active_taps, model) == []
        assert recorded == {}
        assert not torch.equal(model(x), plain)


def test_attention_stays_fused_while_another_thread_records(
    model: Model, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_fused: list[int] = []
    fused = dispatch.scaled_dot_product_attention
    monkeypatch.setattr(
        dispatch, "scaled_dot_product_attention", lambda *inputs: (n_fused.append(1), fused(*inputs))[1]
    )
    with record(model, "*.weights"):
        model(x)
        assert n_fused == []
        in_other_thread(model, x)
    assert n_fused == [1, 1]


def test_a_copied_context_is_recorded(model: Model, x: Tensor) -> None:
    with record(model, "encoder.1.out") as recorded:
        context = copy_context()
        out = in_other_thread(context.run, model, x)
    assert torch.equal(recorded["encoder.1.out"], out)
    assert context.run(active_taps, model) == []


def recordings(model: Model, x: Tensor) -> Iterator[dict[str, Tensor]]:
    """Record in a generator, whose ``with`` stays open between its items."""
    with record(model, "encoder.1.out") as recorded:
        while True:
            recorded.clear()
            model(x)
            yield dict(recorded)


def test_recordings_may_close_in_any_order(model: Model, x: Tensor) -> None:
    first, second = recordings(model, x), recordings(model, 2 * x)
    next(first), next(second)
    first.close()
    assert torch.equal(next(second)["encoder.1.out"], model(2 * x))
    second.close()
    assert active_taps(model) == []


def test_a_recording_may_close_in_another_thread(model: Model, x: Tensor) -> None:
    opened = recordings(model, x)
    next(opened)
    in_other_thread(opened.close)
    assert active_taps(model) == []
