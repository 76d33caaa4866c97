"""One optimiser step: forward and backward over its micro-batches (gradient accumulation), clip, update.

Weights stay float32. In bfloat16 the model runs on a bfloat16 copy of them made inside the graph, so the residual
stream is bfloat16 as well and gradients are float32. A step whose loss or gradient is not finite changes nothing: the
fused optimiser skips it on the device, without synchronisation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from regard.nn import Loss
from regard.progress import warn

LossFunction = Callable[[Any, Any], Loss]


class StepResult(NamedTuple):
    """Sums and gradient norm of a step; all zero but `skipped` if its loss or gradient was not finite."""

    total: float
    nll: float
    n_tokens: float
    gradient_norm: float
    skipped: float


def read_step_results(result_tensors: Sequence[Float[Tensor, 5]]) -> list[StepResult]:
    """Copy the results of several steps from the device at once."""
    return [StepResult(*row) for row in torch.stack(list(result_tensors)).tolist()] if result_tensors else []


class Objective(nn.Module):
    """A model with its loss, as one module that takes a batch."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> Loss:
        return self.loss(self.model, batch)


class TrainingStep:
    """Takes optimiser steps; compiled once, since all batches have the same shape."""

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction,
        optimiser: torch.optim.Optimizer,
        *,
        dtype: torch.dtype,
        clip: float,
        compiled: bool,
    ) -> None:
        self.optimiser = optimiser
        self.clip = clip
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._eager_loss_function = _cast_weights(Objective(model, loss), dtype)
        self._loss_function = self._compile_and_run if compiled else self._eager_loss_function
        self._uses_cuda_graphs = compiled and self.weights[0].device.type == "cuda"

    def __call__(self, batches: Sequence[Any], n_tokens: int) -> Float[Tensor, 5]:
        """Update the weights with the gradient of the micro-batches as one batch of `n_tokens` tokens.

        The result stays on the device; `read_step_results` reads it.
        """
        self.optimiser.zero_grad()
        losses = []
        if self._uses_cuda_graphs:  # the call imports the compiler, which takes seconds
            torch.compiler.cudagraph_mark_step_begin()
        for batch in batches:
            loss = self._loss_function(batch)
            (loss.total / n_tokens).backward()
            losses.append(torch.stack((loss.total.detach(), loss.nll, loss.n_tokens)))
        sums = torch.stack(losses).sum(0)
        norm, skipped = self._apply_gradients(sums[0])
        return torch.cat((torch.where(skipped > 0, 0.0, torch.stack((*sums, norm))), skipped[None]))

    def _compile_and_run(self, batch: Any) -> Loss:
        """Compile the step with the first batch; fall back to eager if that fails (without a C compiler, say)."""
        # Users cannot act on the warnings of this logger.
        logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.ERROR)
        try:
            # CUDA graphs ("reduce-overhead") replay the whole step: launch overhead would dominate small models.
            mode = "reduce-overhead" if self._uses_cuda_graphs else None
            self._loss_function = torch.compile(self._eager_loss_function, dynamic=False, fullgraph=True, mode=mode)
            return self._loss_function(batch)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            warn(f"the training step could not be compiled, so training is slower ({reason})")
            self._loss_function, self._uses_cuda_graphs = self._eager_loss_function, False
            return self._loss_function(batch)

    def _apply_gradients(self, total: Tensor) -> tuple[Tensor, Tensor]:
        """Clip and apply the gradients if all is finite; return their norm, and 1 if the step is skipped."""
        norm = nn.utils.get_total_norm([weight.grad for weight in self.weights if weight.grad is not None])
        skipped = (~(norm.isfinite() & total.isfinite())).float()
        # The fused optimiser divides by grad_scale and skips the step where found_inf is 1, as with GradScaler.
        self.optimiser.grad_scale = (norm / self.clip).clamp(min=1.0).nan_to_num(1.0, 1.0)  # type: ignore[attr-defined]
        self.optimiser.found_inf = skipped  # type: ignore[attr-defined]
        self.optimiser.step()
        return norm, skipped


def _cast_weights(objective: Objective, dtype: torch.dtype) -> Callable[[Any], Loss]:
    """Return the objective computed on its float32 weights, or on a copy of them in `dtype`."""
    if dtype == torch.float32:
        return objective
    weights = dict(objective.named_parameters())

    def run(batch: Any) -> Loss:
        cast = {name: weight.to(dtype) for name, weight in weights.items()}
        loss: Loss = functional_call(objective, cast, (batch,))
        return loss

    return run
