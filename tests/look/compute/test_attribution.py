"""Hidden token attribution against autograd, one output number at a time."""

from __future__ import annotations

import pytest
import torch
from sample_targets import translator
from torch import Tensor, nn
from torch.testing import assert_close

from regard.errors import InputError
from regard.look.compute import attribution as module
from regard.look.compute.attribution import compute_attribution
from regard.look.compute.look_target import LookTarget
from regard.nn import edit, record


def by_autograd(subject: LookTarget, stack: str) -> Tensor:
    """Every number of every output differentiated by itself."""
    names = [side.input_tap for side in subject.sides.values()]
    with record(subject.model, *names) as recorded:
        subject.run()
    inputs = [recorded[name].detach().requires_grad_() for name in names]
    model = subject.model
    with (
        edit(model, names[0], lambda _: inputs[0]),
        edit(model, names[1], lambda _: inputs[1]),
        record(model, f"{stack}.*.out") as outs,
    ):
        subject.run()
    layers = []
    for out in outs.values():
        columns = []
        for vector in out[0]:
            squares = torch.zeros(sum(x.shape[1] for x in inputs), dtype=torch.float64)
            for number in vector:
                found = torch.autograd.grad(number, inputs, retain_graph=True, allow_unused=True)
                rows = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
                squares += torch.cat([row[0].square().sum(-1) for row in rows])
            columns.append(squares.sqrt() / squares.sqrt().sum())
        layers.append(torch.stack(columns, 1))
    return torch.stack(layers)


@pytest.fixture(params=["linearised", "autodiff"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pushforward to test; the other one must not be used."""
    linearised = request.param == "linearised"
    monkeypatch.setattr(module, "MIN_LINEARISED_RATIO", 0 if linearised else 10**9)
    if not linearised:
        monkeypatch.delattr(module, "linearised_pushforward")
    return request.param


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "activation": "gated-gelu", "positions": "rotary"}])
def test_attribution_equals_autograd_jacobian(way: str, stack: str, shape: dict[str, str]) -> None:
    subject = translator(**shape)
    assert_close(compute_attribution(subject, stack).contribution, by_autograd(subject, stack), rtol=1e-9, atol=1e-12)


def test_contributions_sum_to_1_and_no_token_sees_the_future_nor_an_encoder_the_target() -> None:
    subject = translator(source=5, target=4)
    encoder, decoder = (compute_attribution(subject, stack).contribution for stack in ("encoder", "decoder"))
    assert encoder.shape == (2, 9, 5)
    assert decoder.shape == (2, 9, 4)
    for found in (encoder, decoder):
        assert_close(found.sum(1), torch.ones_like(found[:, 0]))
    assert (encoder[:, 5:] == 0).all()
    own = decoder[:, 5:]
    assert (own.tril(-1) == 0).all()
    assert (own.diagonal(dim1=1, dim2=2) > 0).all()


def test_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = translator()
    whole = compute_attribution(subject, "decoder").contribution
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 100)
    monkeypatch.setattr(module, "MIN_LINEARISED_RATIO", 0)
    assert_close(compute_attribution(subject, "decoder").contribution, whole)


def test_the_model_is_unchanged() -> None:
    subject = translator()
    compute_attribution(subject, "encoder")
    assert all(weight.requires_grad for weight in subject.model.parameters())


class Meeting(nn.Module):
    """A feed-forward in which tokens meet, as they do in no layer of ours."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x) + x.mean(1, keepdim=True) * x
        return result


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_model_that_cannot_be_linearised_is_pushed_through_itself(stack: str) -> None:
    subject = translator(5, 3)
    first = subject.model.encoder[0]
    first.feed_forward = Meeting(first.feed_forward)
    assert_close(compute_attribution(subject, stack).contribution, by_autograd(subject, stack), rtol=1e-9, atol=1e-12)


def test_jacobians_that_do_not_fit_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINEARISED_BYTES", 1000)
    monkeypatch.delattr(module, "linearised_pushforward")
    subject = translator()
    assert_close(
        compute_attribution(subject, "encoder").contribution, by_autograd(subject, "encoder"), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_an_estimate_from_all_directions_is_exact(stack: str) -> None:
    subject = translator()
    found = compute_attribution(subject, stack, estimate=8)
    assert found.error is None
    assert_close(found.contribution, compute_attribution(subject, stack).contribution)


def test_estimates_lie_around_the_truth_as_far_as_their_error_says() -> None:
    subject = translator(6, 2, d_model=32, d_ff=16)
    exact = compute_attribution(subject, "encoder").contribution[:, :6]
    found = [compute_attribution(subject, "encoder", estimate=12, seed=seed) for seed in range(40)]
    contributions = torch.stack([each.contribution[:, :6] for each in found])
    error = torch.stack([each.error[:, :6] for each in found if each.error is not None])
    assert_close(contributions.sum(2), torch.ones_like(contributions[:, :, 0]))
    assert_close(contributions.mean(0), exact, rtol=0.05, atol=0.005)
    real = (contributions - exact).square().mean(0).sqrt()
    assert 0.8 < float((error.mean(0) / real).mean()) < 1.25


def test_more_directions_err_less_and_the_future_stays_exactly_0() -> None:
    subject = translator(4, 5, d_model=32)
    few, many = (compute_attribution(subject, "decoder", estimate=count) for count in (4, 24))
    assert few.error is not None
    assert many.error is not None
    assert many.error.mean() < 0.6 * few.error.mean()
    for found in (few, many):
        assert found.error is not None
        assert (found.contribution[:, 4:].tril(-1) == 0).all()
        assert (found.error[:, 4:].tril(-1) == 0).all()


def test_one_direction_is_refused() -> None:
    with pytest.raises(InputError, match="estimate 1: expected at least 2"):
        compute_attribution(translator(), "encoder", estimate=1)
