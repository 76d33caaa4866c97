"""Training on a GPU: the compiled bfloat16 step with CUDA graphs against eager float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.columns import Column
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.nn import record
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import SEQ2SEQ_SPECIAL_TOKENS, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer
from regard.training.optimiser import build_adamw, set_learning_rate
from regard.training.step import TrainingStep, read_step_results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]

WORDS = train_tokenizer(["the cat sat on the mat"], TokenizerConfig(vocabulary=300), SEQ2SEQ_SPECIAL_TOKENS)


def make_step(dropout: float, *, compiled: bool, dtype: torch.dtype):
    task = TranslationTask(TranslateConfig(), TokenizerPair(WORDS, WORDS))
    model = task.build_model(TransformerSeq2SeqConfig(**apply_preset({"preset": "tiny", "dropout": dropout})))
    initialise_weights(model, torch.Generator().manual_seed(0))
    model.cuda().train()
    optimiser = build_adamw(model, 0.0)
    set_learning_rate(optimiser, 1e-3)
    return task, model, TrainingStep(model, task.compute_loss, optimiser, dtype=dtype, clip=1.0, compiled=compiled)


def batches(task: TranslationTask, count: int):
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 40, 400)
    ids = [rng.integers(3, len(WORDS), n).tolist() for n in lengths]
    store = TokenStore(Path(), {"source": Column.from_sentences(ids), "target": Column.from_sentences(ids[::-1])})
    order = PackedOrder(task.example_lengths(store), [64, 64], 16, seed=0)
    placements = order.iterate()
    return [task.make_batch(store, next(placements)[0]).to("cuda") for _ in range(count)]


def losses(dropout: float, *, compiled: bool, dtype: torch.dtype, accumulate: int = 1, steps: int = 8) -> list[float]:
    task, _, stepper = make_step(dropout, compiled=compiled, dtype=dtype)
    every = batches(task, 2)
    step_losses = []
    for step in range(steps):
        torch.manual_seed(step)
        chosen = every[:accumulate] if accumulate > 1 else [every[step % 2]]
        n_tokens = sum(batch.n_tokens for batch in chosen)
        step_losses.append(read_step_results([stepper(chosen, n_tokens)])[0].nll / n_tokens)
    assert compiled == (stepper._loss_function != stepper._eager_loss_function)
    return step_losses


def test_compiled_bfloat16_follows_eager_float32():
    plain = losses(0.0, compiled=False, dtype=torch.float32)
    fast = losses(0.0, compiled=True, dtype=torch.bfloat16)
    assert plain[-1] < plain[0] - 0.3
    np.testing.assert_allclose(fast, plain, rtol=0.02)


def test_accumulation_under_cuda_graphs_follows_eager():
    plain = losses(0.0, compiled=False, dtype=torch.float32, accumulate=2)
    fast = losses(0.0, compiled=True, dtype=torch.bfloat16, accumulate=2)
    np.testing.assert_allclose(fast, plain, rtol=0.02)


def test_each_step_has_its_own_dropout_and_the_seed_reproduces_it():
    once = losses(0.3, compiled=True, dtype=torch.bfloat16)
    again = losses(0.3, compiled=True, dtype=torch.bfloat16)
    np.testing.assert_allclose(once[:2], again[:2], rtol=1e-3)
    task, _, stepper = make_step(0.3, compiled=True, dtype=torch.bfloat16)
    set_learning_rate(stepper.optimiser, 0.0)
    batch = batches(task, 1)
    drawn = set()
    for seed in range(6):
        torch.manual_seed(seed)
        drawn.add(round(read_step_results([stepper(batch, batch[0].n_tokens)])[0].nll, 3))
    assert len(drawn) == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_attention_equals_explicit_attention(dtype):
    task, model, _ = make_step(0.0, compiled=False, dtype=dtype)
    model.to(dtype).eval()
    batch = batches(task, 1)[0]
    with torch.inference_mode():
        fused = model(batch.source, batch.target_in)
        with record(model, "*.weights"):
            explicit = model(batch.source, batch.target_in)
    mask = batch.target_in.segment > 0
    torch.testing.assert_close(fused[mask], explicit[mask], rtol=1e-3, atol=1e-3 if dtype == torch.float32 else 0.08)
