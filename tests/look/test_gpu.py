"""Looking inside on a GPU gives what it gives on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from subjects import translator
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.look.attribution import attribution
from regard.look.seen import Seen
from regard.look.subject import Subject
from regard.look.tangents import linearised
from regard.models.seq2seq import Seq2Seq
from regard.nn import kernels
from regard.text.tokenizer import EOS, PAD, SOS

pytestmark = pytest.mark.gpu


def on_gpu(subject: Subject) -> Subject:
    """The same model and text on the GPU, in float32."""
    model = subject.model
    assert isinstance(model, Seq2Seq)
    ids = {name: [int(token[1:]) for token in side.tokens] for name, side in subject.sides.items()}
    source = sentences_to_rows([ids["encoder"][:-1]], after=EOS, pad=PAD).to(torch.device("cuda"))
    target = sentences_to_rows([ids["decoder"][1:]], before=SOS, pad=PAD).to(torch.device("cuda"))
    moved = model.float().cuda()
    return replace(
        subject,
        model=moved,
        body=lambda: moved.decoded(source, target),
        head=moved.logits,
        predicted=subject.predicted.cuda(),
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "relative-values"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_attribution_in_half_precision_is_that_of_float64(stack: str, positions: str) -> None:
    """Ten bits: a contribution, here the norm of only 64 x 64 numbers, is off by hardly a hundredth of itself."""
    shape = {"d_model": 64, "n_heads": 4, "d_ff": 128, "positions": positions}
    subject = translator(70, 20, **shape)
    exact = attribution(subject, stack).share
    found = attribution(on_gpu(subject), stack).share.cpu().double()
    assert_close(found, exact, rtol=2e-2, atol=1e-4)


def test_the_kernel_gives_what_torch_gives() -> None:
    subject = on_gpu(translator(70, 20, d_model=64, n_heads=4, d_ff=128))
    sent = {"encoder": torch.randn(9, 70, 64, device="cuda"), "decoder": torch.randn(9, 20, 64, device="cuda")}
    push = linearised(subject, "decoder", torch.float16)
    assert kernels.in_use("cuda", torch.float16)["attention_jvp"].startswith("attention_jvp")
    by_kernel = push(sent)
    with kernels.disabled():
        assert_close(by_kernel, push(sent), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("shape", [{"d_model": 256, "n_heads": 1}, {"d_model": 96, "n_heads": 4}, {"d_model": 120}])
def test_attribution_with_heads_that_do_not_suit_the_kernel(shape: dict[str, int]) -> None:
    """Too wide for it, and of widths that are no power of two."""
    subject = translator(40, 12, **{"n_heads": 2, "d_ff": 64, **shape})
    exact = attribution(subject, "decoder").share
    assert_close(attribution(on_gpu(subject), "decoder").share.cpu().double(), exact, rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_effective_attention_gradients_and_faithfulness(kind: str) -> None:
    subject = translator(9, 6)
    here = Seen(subject)
    raw, effective, found, curves = (
        here.attention(kind),
        here.effective_attention(kind),
        here.gradients(),
        here.faithfulness(),
    )
    there = Seen(on_gpu(subject))
    assert_close(there.attention(kind).cpu().double(), raw, rtol=1e-4, atol=1e-5)
    assert_close(there.effective_attention(kind).cpu().double(), effective, rtol=1e-3, atol=1e-4)
    assert_close(
        there.gradients().integrated_gradients.cpu().double(), found.integrated_gradients, rtol=1e-2, atol=1e-3
    )
    assert_close(there.faithfulness().drop.cpu().double(), curves.drop.cpu().double(), rtol=1e-2, atol=1e-2)
    assert there.difference < 1e-3
