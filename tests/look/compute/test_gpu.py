"""Looking inside on a GPU gives what it gives on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sample_targets import translator
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.look.compute.attribution import compute_attribution
from regard.look.compute.jvp import linearised_pushforward
from regard.look.compute.look_target import LookTarget
from regard.look.inspection import Inspection
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import kernels
from regard.text.tokenizer import EOS, PAD, SOS

pytestmark = pytest.mark.gpu


def on_gpu(subject: LookTarget) -> LookTarget:
    """The same model and text on the GPU, in float32."""
    model = subject.model
    assert isinstance(model, TransformerSeq2Seq)
    ids = {name: [int(token[1:]) for token in side.tokens] for name, side in subject.sides.items()}
    source = sentences_to_rows([ids["encoder"][:-1]], suffix_id=EOS, pad_id=PAD).to(torch.device("cuda"))
    target = sentences_to_rows([ids["decoder"][1:]], prefix_id=SOS, pad_id=PAD).to(torch.device("cuda"))
    moved = model.float().cuda()
    return replace(
        subject,
        model=moved,
        run_layers=lambda: moved.hidden_states(source, target),
        head=moved.logits,
        predicted_ids=subject.predicted_ids.cuda(),
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "relative-values"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_attribution_in_half_precision_is_that_of_float64(stack: str, positions: str) -> None:
    """Ten bits: a contribution, here the norm of only 64 x 64 numbers, is off by hardly a hundredth of itself."""
    shape = {"d_model": 64, "n_heads": 4, "d_ff": 128, "positions": positions}
    subject = translator(70, 20, **shape)
    exact = compute_attribution(subject, stack).contribution
    found = compute_attribution(on_gpu(subject), stack).contribution.cpu().double()
    assert_close(found, exact, rtol=2e-2, atol=1e-4)


def test_the_kernel_gives_what_torch_gives() -> None:
    subject = on_gpu(translator(70, 20, d_model=64, n_heads=4, d_ff=128))
    sent = {"encoder": torch.randn(9, 70, 64, device="cuda"), "decoder": torch.randn(9, 20, 64, device="cuda")}
    push = linearised_pushforward(subject, "decoder", torch.float16)
    assert kernels.in_use("cuda", torch.float16)["attention_jvp"].startswith("attention_jvp")
    by_kernel = push(sent)
    with kernels.disabled():
        assert_close(by_kernel, push(sent), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("shape", [{"d_model": 256, "n_heads": 1}, {"d_model": 96, "n_heads": 4}, {"d_model": 120}])
def test_attribution_with_heads_that_do_not_suit_the_kernel(shape: dict[str, int]) -> None:
    """Too wide for it, and of widths that are no power of two."""
    subject = translator(40, 12, **{"n_heads": 2, "d_ff": 64, **shape})
    exact = compute_attribution(subject, "decoder").contribution
    assert_close(
        compute_attribution(on_gpu(subject), "decoder").contribution.cpu().double(), exact, rtol=2e-2, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_effective_attention_gradients_and_faithfulness(kind: str) -> None:
    subject = translator(9, 6)
    here = Inspection(subject)
    raw, effective, found, curves = (
        here.attention(kind),
        here.effective_attention(kind),
        here.gradients(),
        here.faithfulness(),
    )
    on_device = Inspection(on_gpu(subject))
    assert_close(on_device.attention(kind).cpu().double(), raw, rtol=1e-4, atol=1e-5)
    assert_close(on_device.effective_attention(kind).cpu().double(), effective, rtol=1e-3, atol=1e-4)
    assert_close(
        on_device.gradients().integrated_gradients.cpu().double(), found.integrated_gradients, rtol=1e-2, atol=1e-3
    )
    assert_close(on_device.faithfulness().drop.cpu().double(), curves.drop.cpu().double(), rtol=1e-2, atol=1e-2)
    assert on_device.difference < 1e-3
