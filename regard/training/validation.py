"""Validation: loss and metrics on the validation examples, with fixed random numbers."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Int

from regard.data.prefetch import Prefetcher
from regard.errors import NonFiniteError
from regard.metrics import perplexity
from regard.training.prepare import PreparedRun


@torch.inference_mode()
def validate(prepared: PreparedRun, items: Int[np.ndarray, " items"]) -> dict[str, float]:
    """Return loss and perplexity on all validation examples, and the task's own metrics on these."""
    torch.manual_seed(0)
    prepared.model.eval()
    nll, n_tokens = 0.0, 0
    placements = prepared.valid_order.iterate_epoch()
    batches = ((prepared.task.make_batch(prepared.valid_store, placement), None) for placement in placements)
    with Prefetcher(batches, prepared.device) as prefetched:
        for batch, _ in prefetched:
            loss = prepared.task.compute_loss(prepared.model, batch)
            nll, n_tokens = nll + float(loss.nll), n_tokens + int(loss.n_tokens)
    scores = _compute_metrics(prepared, items)
    perplexities = {"valid_perplexity": perplexity(nll, n_tokens)} if prepared.task.has_perplexity else {}
    return {"valid_loss": nll / n_tokens, **perplexities, **scores}


def _compute_metrics(prepared: PreparedRun, items: Int[np.ndarray, " items"]) -> dict[str, float]:
    """Return the task's own metrics; NaN for the one that chooses weights where the model's outputs are no numbers."""
    task = prepared.task
    try:
        return task.compute_validation_metrics(prepared.model, prepared.valid_store, items, prepared.device)
    except NonFiniteError:  # training has diverged, and may recover
        metric = task.validation_metric.key
        return {} if metric.startswith("valid_") else {metric: math.nan}
