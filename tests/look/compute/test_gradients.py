"""Gradient x input and integrated gradients, against autograd one token at a time, finite differences and long sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_targets import one_stack, only_one, translator
from torch import Tensor, nn
from torch.func import jvp, vmap
from torch.testing import assert_close

from regard.look.compute import jvp as tangents
from regard.look.compute.gradients import compute_gradients
from regard.look.compute.jvp import record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget
from regard.nn import edit

SHALLOW = {"n_layers": 1, "n_decoder_layers": 1}

SUBJECTS: dict[str, Callable[[], LookTarget]] = {
    "translator": lambda: translator(norm="post"),
    "translator of another make": lambda: translator(norm="pre", activation="gated-gelu", positions="rotary"),
    "encoder": lambda: one_stack("encoder"),
    "decoder": lambda: one_stack("decoder", positions="relative"),
}


def log_probs(subject: LookTarget, inputs: dict[str, Tensor]) -> Tensor:
    """What is explained, by the model as it runs."""
    with replace_inputs(subject, inputs):
        logits = subject.run()[0]
    return torch.stack([row.softmax(0)[token].log() for row, token in zip(logits, subject.predicted_ids, strict=True)])


def autograd(subject: LookTarget) -> Tensor:
    """Every predicted token differentiated by itself."""
    inputs = {name: x.clone().requires_grad_() for name, x in record_inputs(subject).items()}
    columns = []
    for number in log_probs(subject, inputs):
        found = torch.autograd.grad(number, list(inputs.values()), retain_graph=True)
        both = zip(found, inputs.values(), strict=True)
        columns.append(torch.cat([(gradient * x)[0].sum(-1) for gradient, x in both]).detach())
    return torch.stack(columns, 1)


def grown(inputs: dict[str, Tensor], token: int, by: float) -> dict[str, Tensor]:
    """The inputs, one of them longer by a share of itself."""
    factor = torch.ones(sum(x.shape[1] for x in inputs.values()), dtype=torch.float64)
    factor[token] += by
    parts = factor.split([x.shape[1] for x in inputs.values()])
    return {name: x * part[:, None] for (name, x), part in zip(inputs.items(), parts, strict=True)}


@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
def test_gradient_x_input_equals_autograd_and_finite_differences(make: Callable[[], LookTarget]) -> None:
    subject = make()
    found = compute_gradients(subject, n_steps=1).gradient_x_input
    assert_close(found, autograd(subject), rtol=1e-9, atol=1e-12)
    inputs, by = record_inputs(subject), 1e-5
    with torch.no_grad():
        for token, row in enumerate(found):
            longer, shorter = (log_probs(subject, grown(inputs, token, sign * by)) for sign in (1, -1))
            assert_close(row, (longer - shorter) / (2 * by), rtol=1e-4, atol=1e-6)


@settings(deadline=None, max_examples=5)
@given(source=st.integers(1, 6), target=st.integers(1, 5), seed=st.integers(0, 99))
def test_gradients_for_texts_of_any_length(source: int, target: int, seed: int) -> None:
    subject = translator(source, target, seed, **SHALLOW)
    found = compute_gradients(subject, n_steps=2)
    assert_close(found.gradient_x_input, autograd(subject), rtol=1e-8, atol=1e-11)
    for view in (found.gradient_x_input, found.integrated_gradients):
        assert view.shape == (source + target, target)
        assert (view[source:].tril(-1) == 0).all()  # exactly: no token sees the future


def wide_norms(subject: LookTarget) -> LookTarget:
    """With norms that do not rise steeply near nothing, so that a plain sum comes close to the integral."""
    for module in subject.model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 0.3
    return subject


def long_sum(subject: LookTarget, token: int, steps: int = 2000) -> Tensor:
    """How log p grows with one input, along the way from nothing to the text: a plain Riemann sum."""
    inputs = record_inputs(subject)
    nothing = {name: torch.zeros_like(x) for name, x in inputs.items()}
    alone = {name: x - grown(inputs, token, -1.0)[name] for name, x in inputs.items()}

    def at(alpha: Tensor) -> Tensor:
        here = {name: nothing[name] + alpha * x for name, x in inputs.items()}
        growth: Tensor = jvp(lambda now: log_probs(subject, now), (here,), (alone,))[1]
        return growth

    alphas = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    with edit(subject.model, "*.weights", lambda weights: weights):
        return vmap(at)(alphas).mean(0)


def test_integrated_gradients_are_the_integral() -> None:
    subject = wide_norms(translator(3, 2, activation="gelu", **SHALLOW))
    found = compute_gradients(subject, n_steps=40).integrated_gradients
    assert_close(found, torch.stack([long_sum(subject, token) for token in range(5)]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("subject", [translator(3, 2, **SHALLOW), one_stack("decoder", norm="pre")])
def test_integrated_gradients_sum_to_the_change_up_to_the_convergence_delta(subject: LookTarget) -> None:
    inputs = record_inputs(subject)
    with torch.no_grad():
        change = log_probs(subject, inputs) - log_probs(subject, {name: 0 * x for name, x in inputs.items()})
    gaps = []
    for steps in (3, 12, 48):
        found = compute_gradients(subject, steps)
        assert_close(found.convergence_delta, (found.integrated_gradients.sum(0) - change).abs())
        gaps.append(float(found.convergence_delta.mean()))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.1


def test_a_decisive_input_gets_all_attribution() -> None:
    found = compute_gradients(only_one(5, decisive=3))
    for view in (found.gradient_x_input, found.integrated_gradients):
        assert (view[3] != 0).all()
        assert (view[[0, 1, 2, 4]] == 0).all()


def test_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = translator(2, 5, **SHALLOW)
    whole = compute_gradients(subject, 3)
    monkeypatch.setitem(tangents.CHUNK_ELEMENTS, "cpu", 500)
    assert_close(tuple(compute_gradients(subject, 3)), tuple(whole))


def test_the_model_is_unchanged() -> None:
    subject = translator()
    compute_gradients(subject, 2)
    assert all(weight.requires_grad and weight.grad is None for weight in subject.model.parameters())
