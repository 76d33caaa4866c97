"""Importance of each input to each output of a model, by gradients and by removal, to compare attention with.

    gradients    |x_i . d log p_j / d x_i|          of a model that returns vectors  || d h_j / d x_i ||_F
    removal      |log p_j - log p_j without x_i|    of a model that returns vectors  || h_j - h_j without x_i ||

These are the gradient and leave-one-out measures of Jain and Wallace (2019), by token. A removed input enters the
layers as the zero vector, as in look/compute/faithfulness.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import vmap

from regard.look.compute.attribution import compute_attribution
from regard.look.compute.faithfulness import N_ESTIMATE_DIRECTIONS
from regard.look.compute.gradients import InputVectors, compute_local_gradients, max_parallel_passes
from regard.look.compute.jvp import record_inputs, replace_inputs, transformable_passes
from regard.look.compute.look_target import LookTarget


def gradient_importance(look_target: LookTarget) -> Float[Tensor, "inputs O"]:
    """Return how strongly each output responds to each input; of vectors estimated from a few random directions."""
    if look_target.head is not None:
        return compute_local_gradients(look_target).abs()
    last = list(look_target.sides)[-1]
    return compute_attribution(look_target, last, estimate=N_ESTIMATE_DIRECTIONS).contribution[-1]


def removal_importance(look_target: LookTarget) -> Float[Tensor, "inputs O"]:
    """Return how much each output changes without each input."""
    inputs = record_inputs(look_target)
    sizes = [x.shape[1] for x in inputs.values()]
    device = next(iter(inputs.values())).device
    nothing_and_each = torch.cat((torch.zeros(1, sum(sizes)), torch.eye(sum(sizes)))).bool().to(device)

    def without(gone: Bool[Tensor, " inputs"]) -> Float[Tensor, "O _"]:
        sides = zip(inputs.items(), gone.split(sizes), strict=True)
        return _outputs(look_target, {name: x.masked_fill(part[:, None], 0.0) for (name, x), part in sides})

    with transformable_passes():
        outputs = vmap(without, chunk_size=max_parallel_passes(look_target))(nothing_and_each)
    change: Tensor = (outputs[1:] - outputs[0]).norm(dim=-1)
    return change


def _outputs(look_target: LookTarget, inputs: InputVectors) -> Float[Tensor, "O _"]:
    """Return the log-probability of each prediction, or the last hidden vectors of a model without one."""
    with replace_inputs(look_target, inputs):
        return look_target.run_layers()[0] if look_target.head is None else look_target.explained_outputs()[:, None]
