"""Jacobian-vector products from the inputs of a model to the output of every layer, many at once.

There are two implementations. `autodiff_pushforward` pushes directions through the model itself by forward-mode
differentiation. `linearised_pushforward` first computes a Jacobian per token: between two attentions a Transformer
works on every token alone, so pushing d directions through all tokens at once gives these matrices. A direction then
costs 5 d^2 multiplications per token and layer of an encoder, instead of 12 d^2:

    x ──┬── matrices ── query, key, value ── attention, by its derivative ── mixed ── matrices ──┐
        └── matrices ─────────────────────────────────────────────────────────────────────────── + ── out

Both give the same numbers. The first works for any model; the second pays off with several times more directions than
dimensions of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from threading import Lock

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jvp, vmap

from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.nn import AttentionMask, Positions, edit, force_unfused, record
from regard.nn.kernels import dispatch
from regard.nn.kernels.plain import by_head, output_jvp, weighted_score_jvp

Tangents = Mapping[str, Float[Tensor, "N _ D"]]
"""N tangents at the input of each side; a missing side has tangent 0."""

CHUNK_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Elements of a layer's output pushed at once: enough to fill a CPU cache or to utilise a GPU."""

Pushforward = Callable[[Tangents], Float[Tensor, "N L T"]]
"""A function from input tangents to the squared norms of the output tangents of all layers of a stack."""


def record_inputs(look_target: LookTarget) -> dict[str, Float[Tensor, "1 T D"]]:
    """Return the vectors that enter the layers on each side."""
    recorded = _record_taps(look_target, [side.input_tap for side in look_target.sides.values()])
    return {name: recorded[side.input_tap] for name, side in look_target.sides.items()}


@contextmanager
def replace_inputs(look_target: LookTarget, inputs: Mapping[str, Float[Tensor, "1 T D"]]) -> Iterator[None]:
    """Replace the vectors that enter the layers, so that the rest of the model can be differentiated by them."""
    entrances = {look_target.sides[name].input_tap: value for name, value in inputs.items()}
    with override_taps(look_target.model, entrances), force_unfused(look_target.model):
        yield


@contextmanager
def override_taps(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace the values that flow through the named taps."""
    with ExitStack() as changed:
        for name, value in values.items():
            changed.enter_context(edit(model, name, partial(_return_override, value)))
        yield


def _return_override(value: Tensor, _flowing: Tensor) -> Tensor:
    return value


@contextmanager
def transformable_passes() -> Iterator[None]:
    """Run passes that `torch.func` can transform: in plain PyTorch, and without a graph for the parameters.

    A transform differentiates by its own inputs inside `torch.no_grad` as well.
    """
    with torch.no_grad(), dispatch.disabled():
        yield


_forward_mode_lock = Lock()
"""Held while a JVP is computed: torch counts the levels of forward-mode differentiation for the whole process."""


def autodiff_pushforward(look_target: LookTarget, stack: str) -> Pushforward:
    """Return a pushforward through the model itself, for any architecture."""
    inputs, outs = record_inputs(look_target), _layer_output_taps(look_target, stack)
    last = _record_taps(look_target, outs[-1:])  # later layers need no tangents

    def layers(values: dict[str, Tensor]) -> Tensor:
        with (
            replace_inputs(look_target, values),
            record(look_target.model, *outs) as recorded,
            override_taps(look_target.model, last),
        ):
            look_target.run_layers()
        return torch.stack([recorded[name][0] for name in outs])

    def push(tangents: Tangents) -> Float[Tensor, "N L T"]:
        moving = {name: inputs[name] for name in tangents}

        def one(directions: dict[str, Tensor]) -> Tensor:
            moved: Tensor = jvp(layers, (moving,), ({name: each[None] for name, each in directions.items()},))[1]
            return moved.square().sum(-1)

        with transformable_passes(), _forward_mode_lock:
            squared_norms: Tensor = vmap(one)(dict(tangents))
        return squared_norms

    return push


@torch.no_grad()
def finite_difference(look_target: LookTarget, stack: str, tangents: Tangents) -> Float[Tensor, "L T"]:
    """Approximate the effect of one direction per side by a finite difference, to check the linearisation."""
    outs, inputs = _layer_output_taps(look_target, stack), record_inputs(look_target)
    step = 1e-3 * min(float(inputs[side].norm() / direction.norm()) for side, direction in tangents.items())
    ends = []
    for way in (step, -step):
        near = {side: inputs[side] + way * direction for side, direction in tangents.items()}
        with replace_inputs(look_target, near), record(look_target.model, *outs) as recorded:
            look_target.run_layers()
        ends.append(torch.stack([recorded[name][0] for name in outs]))
    return ((ends[0] - ends[1]) / (2 * step)).square().sum(-1)


def _layer_output_taps(look_target: LookTarget, stack: str) -> list[str]:
    return [f"{stack}.{layer}.out" for layer in range(look_target.n_layers(stack))]


def _record_taps(look_target: LookTarget, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the values of taps in one pass over the text."""
    with torch.no_grad(), record(look_target.model, *names) as recorded:
        look_target.run_layers()
    return recorded


@dataclass(frozen=True)
class LinearisedAttention:
    """One linearised attention: tangents of queries, keys and values to the tangent of its output."""

    positions: Positions
    query: Float[Tensor, "H Q E"]
    key: Float[Tensor, "H K E"]
    value: Float[Tensor, "H K E2"]
    weights: Float[Tensor, "H Q K"]
    mixed: Float[Tensor, "H Q E2"]

    def pushforward(
        self,
        query: Float[Tensor, "Q N HE"],
        key: Float[Tensor, "K N HE"] | None,
        value: Float[Tensor, "K N HE2"] | None,
    ) -> Float[Tensor, "Q N HE2"]:
        """Return ``do = (p ds) v - (sum of p ds) o + p dv``, p the weights: see kernels/plain.py.

        Keys and values that are None do not move.
        """
        if not self.positions.adds_to_scores:
            return dispatch.attention_jvp(
                query, key, value, self.query, self.key, self.value, self.weights, self.mixed
            )  # fmt: skip
        mask = self._make_mask(query.shape[1])
        bias = self.positions.score_bias(by_head(query, len(self.query)).permute(2, 0, 1, 3), mask)
        bias = None if bias is None else bias.permute(1, 2, 0, 3)
        scores = weighted_score_jvp(query, key, self.query, self.key, self.weights, bias)  # (H, Q, N, K)
        out = output_jvp(scores, value, self.value, self.weights, self.mixed)  # (H, Q, N, E2)
        if (value_bias := self.positions.value_bias(scores.permute(2, 0, 1, 3), mask)) is not None:
            out += value_bias.permute(1, 2, 0, 3)
        return out.permute(1, 2, 0, 3).flatten(2)

    def _make_mask(self, n_rows: int) -> AttentionMask:
        """Return the positions of a text that is alone in its row."""
        query, key = (torch.arange(x.shape[1], device=x.device).expand(n_rows, -1) for x in (self.query, self.key))
        return AttentionMask(query, key)

    @property
    def widths(self) -> list[int]:
        """Return the total widths of queries, keys and values over all heads."""
        return [len(part) * part.shape[-1] for part in (self.query, self.key, self.value)]

    def to(self, dtype: torch.dtype) -> LinearisedAttention:
        parts = (self.query, self.key, self.value, self.weights, self.mixed)
        return LinearisedAttention(deepcopy(self.positions).to(dtype), *(part.to(dtype).contiguous() for part in parts))


@dataclass(frozen=True)
class LinearisedLayer:
    """One linearised layer: its attentions, and per token the Jacobians that lead to them and to the output.

    Attention i, and last of all the output, take the sum of what comes by a matrix from the layer's input and from
    each attention before: ``matrices[i]`` are those. An attention that looks at another side has in
    `memory_matrices` those from the end of that side to its keys and values.
    """

    attentions: Sequence[LinearisedAttention]
    matrices: Sequence[Sequence[Float[Tensor, "T _ _"]]]
    memory_matrices: Sequence[Float[Tensor, "S _ _"] | None]

    def pushforward(
        self, x: Float[Tensor, "T N D"], memory_tangents: Float[Tensor, "S N D"] | None
    ) -> Float[Tensor, "T N D"]:
        """Push tangents of the layer's input, and of the side it cross-attends to, to its output."""
        flowing = [x]
        for mix, matrices, memory in zip(self.attentions, self.matrices, self.memory_matrices, strict=False):
            moved, key, value = _sum_products(flowing, matrices), None, None
            if memory is None:
                moved, key, value = moved.split(mix.widths, -1)
            elif memory_tangents is not None:
                key, value = torch.bmm(memory_tangents, memory).split(mix.widths[1:], -1)
            flowing.append(mix.pushforward(moved, key, value))
        return _sum_products(flowing, self.matrices[-1])


def _sum_products(tangents: Sequence[Tensor], matrices: Sequence[Tensor]) -> Tensor:
    total = torch.bmm(tangents[0], matrices[0])
    for moved, matrix in zip(tangents[1:], matrices[1:], strict=True):
        total.baddbmm_(moved, matrix)
    return total


def linearised_pushforward(look_target: LookTarget, stack: str, dtype: torch.dtype) -> Pushforward:
    """Return a pushforward by per-token Jacobians in `dtype`, for models that mix tokens only in attention."""
    sides = list(look_target.sides)[: list(look_target.sides).index(stack) + 1]
    layers = _linearise_stacks(look_target, sides, dtype)
    exact = torch.promote_types(dtype, torch.float32)

    @torch.no_grad()
    def push(tangents: Tangents) -> Float[Tensor, "N L T"]:
        moved: Tensor | None = None
        lengths: list[Tensor] = []
        for side in sides:
            if side in tangents:
                x = tangents[side].to(dtype).transpose(0, 1)
            elif moved is not None:
                x = moved.new_zeros(len(look_target.sides[side].tokens), *moved.shape[1:])
            else:
                continue
            lengths = []
            for layer in layers[side]:
                x = layer.pushforward(x, moved)
                lengths.append(torch.linalg.vector_norm(x, dim=-1, dtype=exact))
            moved = x
        return torch.stack(lengths).square().permute(2, 0, 1)

    return push


def _linearise_stacks(
    look_target: LookTarget, stacks: Sequence[str], dtype: torch.dtype
) -> dict[str, list[LinearisedLayer]]:
    """Linearise the layers of these sides: one pass for their inputs, one for each attention output."""
    fixed = _record_taps(look_target, ["*"])
    kinds = [kind for kind in look_target.kinds() if ATTENTION_KINDS[kind].query_side in stacks]
    attentions = {kind: look_target.attentions(kind) for kind in kinds}
    outs = [out for side in stacks for out in _layer_output_taps(look_target, side)]
    parts = [f"{name}.{part}" for kind in kinds for name in attentions[kind] for part in ("query", "key", "value")]
    queries = [part for part in parts if part.endswith("query")] if "cross" in kinds else []
    entrances = [look_target.sides[side].input_tap for side in stacks]
    respond = partial(_token_jacobians, look_target, fixed, dtype)
    moved_by = {"": respond([*entrances, *outs[:-1]], [*parts, *outs])}
    for kind in kinds:
        moved_by[kind] = respond([f"{name}.mixed" for name in attentions[kind]], [*queries, *outs])
    return {
        side: [
            _linearise_layer(look_target, side, number, fixed, moved_by) for number in range(look_target.n_layers(side))
        ]
        for side in stacks
    }


def _linearise_layer(
    look_target: LookTarget,
    side: str,
    index: int,
    activations: Mapping[str, Tensor],
    jacobians: Mapping[str, Mapping[str, Tensor]],
) -> LinearisedLayer:
    """Build one layer from the values of its taps and their Jacobians by its input ("") and attention outputs."""
    mixes: list[LinearisedAttention] = []
    matrices: list[list[Tensor]] = []
    memory: list[Tensor | None] = []
    before = [jacobians[""]]
    for kind in [kind for kind in jacobians if kind and ATTENTION_KINDS[kind].query_side == side]:
        name, module = list(look_target.attentions(kind).items())[index]
        own = ATTENTION_KINDS[kind].key_side == side
        parts = ("query", "key", "value") if own else ("query",)
        query, key, value, weights = (activations[f"{name}.{part}"][0] for part in ("query", "key", "value", "weights"))
        mixed = activations[f"{name}.mixed"][0].unflatten(-1, (module.n_heads, -1)).transpose(0, 1)
        mixes.append(
            LinearisedAttention(module.positions, query, key, value, weights, mixed).to(
                before[0][f"{name}.query"].dtype
            )
        )
        matrices.append([torch.cat([way[f"{name}.{part}"] for part in parts], -1) for way in before])
        memory.append(None if own else torch.cat([jacobians[""][f"{name}.{part}"] for part in ("key", "value")], -1))
        before.append(jacobians[kind])
    matrices.append([way[f"{side}.{index}.out"] for way in before])
    return LinearisedLayer(mixes, matrices, memory)


def _token_jacobians(
    look_target: LookTarget,
    activations: Mapping[str, Tensor],
    dtype: torch.dtype,
    input_taps: Sequence[str],
    output_taps: Sequence[str],
) -> dict[str, Float[Tensor, "T D _"]]:
    """Return the per-token Jacobians of taps, pushing each dimension of the moving taps in all tokens at once.

    Every other place where tokens enter, leave or meet stays as it is, so that no change goes further than that.
    """
    places = [name for name in activations if not name.endswith(".weights")]

    def run(change: Float[Tensor, " D"]) -> list[Tensor]:
        values = {name: activations[name] + change if name in input_taps else activations[name] for name in places}
        with record(look_target.model, *output_taps) as recorded, override_taps(look_target.model, values):
            look_target.run_layers()
        return [_flatten_heads(recorded[name]) for name in output_taps]

    width, like = activations[input_taps[0]].shape[-1], activations[input_taps[0]]

    def one(direction: Float[Tensor, " D"]) -> list[Tensor]:
        answers: list[Tensor] = jvp(run, (like.new_zeros(width),), (direction,))[1]
        return answers

    chunk_size = max(1, CHUNK_ELEMENTS.get(like.device.type, CHUNK_ELEMENTS["cpu"]) // like.numel())
    with transformable_passes(), _forward_mode_lock:
        answers = vmap(one, chunk_size=chunk_size)(torch.eye(width, dtype=like.dtype, device=like.device))
    return {
        name: answer.to(dtype).transpose(0, 1).contiguous() for name, answer in zip(output_taps, answers, strict=True)
    }


def _flatten_heads(x: Tensor) -> Float[Tensor, "T _"]:
    """Return the value of a tap with one row per token, heads concatenated."""
    return x[0] if x.ndim == 3 else x[0].transpose(0, 1).flatten(1)
