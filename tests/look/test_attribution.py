"""Hidden token attribution against autograd, one output number at a time."""

from __future__ import annotations

import pytest
import torch
from subjects import translator
from torch import Tensor
from torch.testing import assert_close

from regard.look import attribution as module
from regard.look.attribution import attribution
from regard.look.subject import Subject
from regard.nn import edit, record


def by_autograd(subject: Subject, stack: str) -> Tensor:
    """Every number of every output differentiated by itself."""
    names = [side.entrance for side in subject.sides.values()]
    with record(subject.model, *names) as heard:
        subject.run()
    inputs = [heard[name].detach().requires_grad_() for name in names]
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


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "activation": "gated-gelu", "positions": "rotary"}])
def test_it_is_the_jacobian_of_autograd(stack: str, shape: dict[str, str]) -> None:
    subject = translator(**shape)
    assert_close(attribution(subject, stack), by_autograd(subject, stack), rtol=1e-9, atol=1e-12)


def test_contributions_sum_to_1_and_no_token_sees_the_future_nor_an_encoder_the_target() -> None:
    subject = translator(source=5, target=4)
    encoder, decoder = attribution(subject, "encoder"), attribution(subject, "decoder")
    assert encoder.shape == (2, 9, 5)
    assert decoder.shape == (2, 9, 4)
    for found in (encoder, decoder):
        assert_close(found.sum(1), torch.ones_like(found[:, 0]))
    assert (encoder[:, 5:] == 0).all()
    own = decoder[:, 5:]
    assert (own.tril(-1) == 0).all()
    assert (own.diagonal(dim1=1, dim2=2) > 0).all()


def test_in_any_number_of_parts_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = translator()
    whole = attribution(subject, "decoder")
    monkeypatch.setitem(module.AT_ONCE, "cpu", 100)
    assert_close(attribution(subject, "decoder"), whole)


def test_the_model_is_left_as_it_was() -> None:
    subject = translator()
    attribution(subject, "encoder")
    assert all(weight.requires_grad for weight in subject.model.parameters())
