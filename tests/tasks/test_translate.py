"""Translation: the loss against plain definitions, and settings out of range."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_runs import ready, recipe
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from regard.data.batches import Seq2SeqBatch
from regard.errors import ConfigError
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import IGNORE
from regard.tasks.translate import TranslateConfig, TranslationTask


class Fresh:
    """A batch, and models not yet trained."""

    def __init__(self, folder_factory: pytest.TempPathFactory) -> None:
        folder = folder_factory.mktemp("fresh")
        self.prepared = ready(recipe(folder), folder / "run")
        placement, _ = next(self.prepared.train_order.iterate())
        self.batch: Seq2SeqBatch = self.prepared.task.make_batch(self.prepared.train_store, placement)

    def task(self, **config: float) -> TranslationTask:
        return TranslationTask(TranslateConfig(**config), self.prepared.task.tokenizers)

    def model(self, dropout: float = 0.0) -> TransformerSeq2Seq:
        model = self.prepared.task.build_model(replace(self.prepared.config.model, dropout=dropout)).train()
        model.load_state_dict(self.prepared.model.state_dict())
        return model


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return Fresh(tmp_path_factory)


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_smoothed_cross_entropy(fresh: Fresh, smoothing: float) -> None:
    model, batch = fresh.model(), fresh.batch
    loss = fresh.task(label_smoothing=smoothing).compute_loss(model, batch)
    logits, target = model(batch.source, batch.target_in).flatten(0, 1), batch.target_out.flatten()
    expected = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    plain = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
    assert_close(loss.total, expected, rtol=1e-4, atol=1e-3)
    assert_close(loss.nll, plain, rtol=1e-4, atol=1e-3, check_dtype=False)
    assert int(loss.n_tokens) == batch.n_tokens == int((target != IGNORE).sum())
    for ours, theirs in zip(gradients(loss.total, model), gradients(expected, model), strict=True):
        assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_r_drop_is_two_passes_and_what_is_between_them(fresh: Fresh) -> None:
    """Liang et al. 2021, eq. 4: mean of the two losses + alpha / 2 (KL(p | q) + KL(q | p))."""
    model, batch = fresh.model(dropout=0.3), fresh.batch
    torch.manual_seed(5)
    loss = fresh.task(label_smoothing=0.0, r_drop=2.0).compute_loss(model, batch)
    torch.manual_seed(5)
    one, other = (model(batch.source, batch.target_in).log_softmax(-1) for _ in range(2))
    assert not torch.equal(one, other)
    is_target = batch.target_out != IGNORE
    nll = [F.nll_loss(p[is_target], batch.target_out[is_target], reduction="sum") for p in (one, other)]
    divergences = [
        F.kl_div(p[is_target], q[is_target], log_target=True, reduction="sum") for p, q in ((one, other), (other, one))
    ]
    expected = sum(nll) / 2 + 2.0 * sum(divergences) / 2
    assert_close(loss.total, expected, rtol=1e-4, atol=1e-3)
    for ours, theirs in zip(gradients(loss.total, model), gradients(expected, model), strict=True):
        assert_close(ours, theirs, rtol=1e-3, atol=2e-3)


def test_r_drop_is_for_training_only(fresh: Fresh) -> None:
    model = fresh.model(dropout=0.3).eval()
    plain, twice = (fresh.task(r_drop=r_drop).compute_loss(model, fresh.batch) for r_drop in (0.0, 2.0))
    assert_close(plain.total, twice.total)


@pytest.mark.parametrize(
    "wrong", [{"label_smoothing": 1.0}, {"label_smoothing": -0.1}, {"label_smoothing": float("nan")}, {"r_drop": -1.0}]
)
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"^task.{next(iter(wrong))} = .*; expected 0"):
        TranslateConfig(**wrong)
