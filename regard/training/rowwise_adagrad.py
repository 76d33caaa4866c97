"""Row-wise Adagrad for tables of vectors with sparse gradients: work in proportion to the rows of a batch.

Adam would update every row of a table at every step, where a batch of text touches a few hundred of a hundred thousand
words, and would move rare words by momenta that are long out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class RowwiseAdagrad(torch.optim.Optimizer):
    """``row -= lr * g / sqrt(sum of mean(g^2))`` for each gradient of a row, a batch counting as all its gradients.

    Adagrad (Duchi et al. 2011) with one sum for each row instead of each number. A row that occurs n times in a batch
    moves about sqrt(n) times as far as one that occurs once, so frequent words do not overshoot in large batches.
    """

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(self, parameters: Iterable[nn.Parameter], eps: float = 1e-20) -> None:
        super().__init__([{"params": list(parameters), "lr_scale": 1.0}], {"lr": 0.0, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Apply the gradients divided by `grad_scale`; do nothing if `found_inf` is 1, as fused AdamW does."""
        if self.found_inf is not None and bool(self.found_inf):
            return
        scale = 1.0 if self.grad_scale is None else float(self.grad_scale)
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update_rows(weight, group["lr"] / scale, group["eps"], scale)

    def _update_rows(self, weight: nn.Parameter, rate: float, eps: float, scale: float) -> None:
        """Add each gradient of a row to the sum of its row, then to the row."""
        assert weight.grad is not None
        assert weight.grad.is_sparse, "row-wise Adagrad needs sparse gradients"
        rows, values = weight.grad._indices()[0], weight.grad._values()
        state = self.state[weight]
        if not state:
            state["sum_of_squares"] = weight.new_zeros(len(weight))
        sums = state["sum_of_squares"]
        sums.index_add_(0, rows, values.square().mean(1), alpha=scale**-2)
        weight.index_add_(0, rows, values * (sums[rows] + eps).rsqrt_()[:, None], alpha=-rate)
