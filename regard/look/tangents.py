"""How a small change of what enters a model moves the output of every layer: Jacobian-vector products, many at once.

There are two ways. `direct` sends directions through the model itself, by forward differentiation. `linearised`
first asks the model what it does to each token: between two attentions a Transformer works on every token by itself,
so all of that is one matrix for each token, found by sending d directions to all tokens at once. A direction then
costs 5 d^2 multiplications per token and layer of an encoder, instead of 12 d^2:

    x ──┬── matrices ── query, key, value ── attention, by its derivative ── mixed ── matrices ──┐
        └── matrices ─────────────────────────────────────────────────────────────────────────── + ── out

Both give the same numbers. The first serves any model, the second pays when there are several times more directions
than a token is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jvp, vmap

from regard.look.subject import KINDS, Subject
from regard.nn import Positions, Sight, edit, record, step_by_step
from regard.nn.kernels import dispatch
from regard.nn.kernels.plain import by_head, output_jvp, weighted_score_jvp

Tangents = Mapping[str, Float[Tensor, "N _ D"]]
"""N directions at the entrance of each side; a side that is not named does not move."""

AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Numbers of a layer's output that all directions sent at once have: what stays near a CPU, or keeps a GPU busy."""

Push = Callable[[Tangents], Float[Tensor, "N L T"]]
"""From directions at the entrances to the squared lengths by which the outputs of all layers of a stack move."""


def entered(subject: Subject) -> dict[str, Float[Tensor, "1 T D"]]:
    """The vectors that enter the layers on each side."""
    heard = _values(subject, [side.entrance for side in subject.sides.values()])
    return {name: heard[side.entrance] for name, side in subject.sides.items()}


@contextmanager
def entering(subject: Subject, inputs: Mapping[str, Float[Tensor, "1 T D"]]) -> Iterator[None]:
    """These vectors enter the layers instead of those of the text; whatever they go through can be differentiated."""
    entrances = {subject.sides[name].entrance: value for name, value in inputs.items()}
    with replaced(subject.model, entrances), step_by_step(subject.model):
        yield


@contextmanager
def replaced(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """These values flow through the taps of these names, whatever comes."""
    with ExitStack() as changed:
        for name, value in values.items():
            changed.enter_context(edit(model, name, partial(_instead, value)))
        yield


def _instead(value: Tensor, _flowing: Tensor) -> Tensor:
    return value


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Weights that ask for no gradient, so that no graph is kept for them; as they were afterwards."""
    asking = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in asking:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in asking:
            weight.requires_grad_(True)


def direct(subject: Subject, stack: str) -> Push:
    """Through the model itself: for any model, whatever it is made of."""
    inputs, outs = entered(subject), _outs(subject, stack)
    last = _values(subject, outs[-1:])  # what comes after it need not move

    def layers(values: dict[str, Tensor]) -> Tensor:
        # The weights are listened to because fused attention has no forward derivative.
        with entering(subject, values), record(subject.model, *outs, "*.weights", needed=False) as heard:
            with replaced(subject.model, last):
                subject.body()
            return torch.stack([heard[name][0] for name in outs])

    def push(tangents: Tangents) -> Float[Tensor, "N L T"]:
        moving = {name: inputs[name] for name in tangents}

        def one(directions: dict[str, Tensor]) -> Tensor:
            moved: Tensor = jvp(layers, (moving,), ({name: each[None] for name, each in directions.items()},))[1]
            return moved.square().sum(-1)

        with frozen(subject.model), torch.enable_grad():
            found: Tensor = vmap(one)(dict(tangents))
        return found

    return push


@torch.no_grad()
def small_step(subject: Subject, stack: str, tangents: Tangents) -> Float[Tensor, "L T"]:
    """What one direction on each side does, by the difference of two runs near the text: rough, and beyond doubt."""
    outs, inputs = _outs(subject, stack), entered(subject)
    step = 1e-3 * min(float(inputs[side].norm() / direction.norm()) for side, direction in tangents.items())
    ends = []
    for way in (step, -step):
        near = {side: inputs[side] + way * direction for side, direction in tangents.items()}
        with entering(subject, near), record(subject.model, *outs) as heard:
            subject.body()
        ends.append(torch.stack([heard[name][0] for name in outs]))
    return ((ends[0] - ends[1]) / (2 * step)).square().sum(-1)


def _outs(subject: Subject, stack: str) -> list[str]:
    return [f"{stack}.{layer}.out" for layer in range(subject.n_layers(stack))]


def _values(subject: Subject, names: Sequence[str]) -> dict[str, Tensor]:
    """What flows through taps while the model takes the text."""
    with torch.no_grad(), record(subject.model, *names) as heard:
        subject.body()
    return heard


@dataclass(frozen=True)
class Mix:
    """One attention, linearised: from how queries, keys and values move to how what it mixes of them moves."""

    positions: Positions
    query: Float[Tensor, "H Q E"]
    key: Float[Tensor, "H K E"]
    value: Float[Tensor, "H K E2"]
    weights: Float[Tensor, "H Q K"]
    mixed: Float[Tensor, "H Q E2"]

    def push(
        self,
        query: Float[Tensor, "Q N HE"],
        key: Float[Tensor, "K N HE"] | None,
        value: Float[Tensor, "K N HE2"] | None,
    ) -> Float[Tensor, "Q N HE2"]:
        """``do = (p ds) v - (sum of p ds) o + p dv``, p the weights: see kernels/plain.py.

        Keys and values that are None do not move.
        """
        if not self.positions.adds_to_scores:
            return dispatch.attention_jvp(
                query, key, value, self.query, self.key, self.value, self.weights, self.mixed
            )  # fmt: skip
        sight = self._sight(query.shape[1])
        added = self.positions.score(by_head(query, len(self.query)).permute(2, 0, 1, 3), sight)
        added = None if added is None else added.permute(1, 2, 0, 3)
        scores = weighted_score_jvp(query, key, self.query, self.key, self.weights, added)  # (H, Q, N, K)
        out = output_jvp(scores, value, self.value, self.weights, self.mixed)  # (H, Q, N, E2)
        if (more := self.positions.value(scores.permute(2, 0, 1, 3), sight)) is not None:
            out += more.permute(1, 2, 0, 3)
        return out.permute(1, 2, 0, 3).flatten(2)

    def _sight(self, n_rows: int) -> Sight:
        """Where the tokens of a text stand that is alone in its row."""
        query, key = (torch.arange(x.shape[1], device=x.device).expand(n_rows, -1) for x in (self.query, self.key))
        return Sight(query, key)

    @property
    def widths(self) -> list[int]:
        """Of the queries, keys and values of all heads together."""
        return [len(part) * part.shape[-1] for part in (self.query, self.key, self.value)]

    def to(self, dtype: torch.dtype) -> Mix:
        parts = (self.query, self.key, self.value, self.weights, self.mixed)
        return Mix(deepcopy(self.positions).to(dtype), *(part.to(dtype).contiguous() for part in parts))


@dataclass(frozen=True)
class Layer:
    """One layer, linearised: its attentions, and for every token the matrices that lead to them and to what leaves it.

    Attention i, and last of all the output, take the sum of what comes by a matrix from the layer's input and from
    each attention before: ``matrices[i]`` are those. An attention that looks at another side has in `memory` the
    matrices from the end of that side to its keys and values.
    """

    mixes: Sequence[Mix]
    matrices: Sequence[Sequence[Float[Tensor, "T _ _"]]]
    memory: Sequence[Float[Tensor, "S _ _"] | None]

    def push(self, x: Float[Tensor, "T N D"], seen: Float[Tensor, "S N D"] | None) -> Float[Tensor, "T N D"]:
        """From how the input of the layer moves, and the side it looks at, to how its output does."""
        flowing = [x]
        for mix, matrices, memory in zip(self.mixes, self.matrices, self.memory, strict=False):
            moved, key, value = _sum(flowing, matrices), None, None
            if memory is None:
                moved, key, value = moved.split(mix.widths, -1)
            elif seen is not None:
                key, value = torch.bmm(seen, memory).split(mix.widths[1:], -1)
            flowing.append(mix.push(moved, key, value))
        return _sum(flowing, self.matrices[-1])


def _sum(flowing: Sequence[Tensor], matrices: Sequence[Tensor]) -> Tensor:
    total = torch.bmm(flowing[0], matrices[0])
    for moved, matrix in zip(flowing[1:], matrices[1:], strict=True):
        total.baddbmm_(moved, matrix)
    return total


def linearised(subject: Subject, stack: str, dtype: torch.dtype) -> Push:
    """By the matrices of every token, in `dtype`: for models whose tokens meet nowhere but in multi-head attention."""
    sides = list(subject.sides)[: list(subject.sides).index(stack) + 1]
    with frozen(subject.model), _as_exact_as(dtype):
        layers = _linearise(subject, sides, dtype)

    exact = torch.promote_types(dtype, torch.float32)

    @torch.no_grad()
    def push(tangents: Tangents) -> Float[Tensor, "N L T"]:
        moved: Tensor | None = None
        lengths: list[Tensor] = []
        for side in sides:
            if side in tangents:
                x = tangents[side].to(dtype).transpose(0, 1)
            elif moved is not None:
                x = moved.new_zeros(len(subject.sides[side].tokens), *moved.shape[1:])
            else:
                continue
            lengths = []
            for layer in layers[side]:
                x = layer.push(x, moved)
                lengths.append(torch.linalg.vector_norm(x, dim=-1, dtype=exact))
            moved = x
        return torch.stack(lengths).square().permute(2, 0, 1)

    return push


@contextmanager
def _as_exact_as(dtype: torch.dtype) -> Iterator[None]:
    """Matrices that end in half precision need no products more exact than that: the tensor cores' float32 will do."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or dtype == torch.float16
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _linearise(subject: Subject, sides: Sequence[str], dtype: torch.dtype) -> dict[str, list[Layer]]:
    """The layers of these sides: one pass finds all that comes from their inputs, one each all that attentions mix."""
    fixed = _values(subject, ["*"])
    kinds = [kind for kind in subject.kinds() if KINDS[kind].query in sides]
    attentions = {kind: subject.attentions(kind) for kind in kinds}
    outs = [out for side in sides for out in _outs(subject, side)]
    parts = [f"{name}.{part}" for kind in kinds for name in attentions[kind] for part in ("query", "key", "value")]
    queries = [part for part in parts if part.endswith("query")] if "cross" in kinds else []
    entrances = [subject.sides[side].entrance for side in sides]
    respond = partial(_responses, subject, fixed, dtype)
    moved_by = {"": respond([*entrances, *outs[:-1]], [*parts, *outs])}
    for kind in kinds:
        moved_by[kind] = respond([f"{name}.mixed" for name in attentions[kind]], [*queries, *outs])
    return {
        side: [_layer(subject, side, number, fixed, moved_by) for number in range(subject.n_layers(side))]
        for side in sides
    }


def _layer(
    subject: Subject, side: str, number: int, fixed: Mapping[str, Tensor], moved_by: Mapping[str, Mapping[str, Tensor]]
) -> Layer:
    """One layer, from what flows through its taps and how they answer to its input ("") and to what is mixed."""
    mixes: list[Mix] = []
    matrices: list[list[Tensor]] = []
    memory: list[Tensor | None] = []
    before = [moved_by[""]]
    for kind in [kind for kind in moved_by if kind and KINDS[kind].query == side]:
        name, module = list(subject.attentions(kind).items())[number]
        own = KINDS[kind].key == side
        parts = ("query", "key", "value") if own else ("query",)
        query, key, value, weights = (fixed[f"{name}.{part}"][0] for part in ("query", "key", "value", "weights"))
        mixed = fixed[f"{name}.mixed"][0].unflatten(-1, (module.n_heads, -1)).transpose(0, 1)
        mixes.append(Mix(module.positions, query, key, value, weights, mixed).to(before[0][f"{name}.query"].dtype))
        matrices.append([torch.cat([way[f"{name}.{part}"] for part in parts], -1) for way in before])
        memory.append(None if own else torch.cat([moved_by[""][f"{name}.{part}"] for part in ("key", "value")], -1))
        before.append(moved_by[kind])
    matrices.append([way[f"{side}.{number}.out"] for way in before])
    return Layer(mixes, matrices, memory)


def _responses(
    subject: Subject, fixed: Mapping[str, Tensor], dtype: torch.dtype, moving: Sequence[str], heard: Sequence[str]
) -> dict[str, Float[Tensor, "T D _"]]:
    """How taps answer, token by token, when each dimension of the moving taps is changed by itself in all tokens.

    Every other place where tokens enter, leave or meet stays as it is, so that no change goes further than that.
    """
    places = [name for name in fixed if not name.endswith(".weights")]

    def run(change: Float[Tensor, " D"]) -> list[Tensor]:
        values = {name: fixed[name] + change if name in moving else fixed[name] for name in places}
        with record(subject.model, *heard) as found, replaced(subject.model, values):
            subject.body()
        return [_by_token(found[name]) for name in heard]

    width, like = fixed[moving[0]].shape[-1], fixed[moving[0]]

    def one(direction: Float[Tensor, " D"]) -> list[Tensor]:
        answers: list[Tensor] = jvp(run, (like.new_zeros(width),), (direction,))[1]
        return answers

    at_once = max(1, AT_ONCE.get(like.device.type, AT_ONCE["cpu"]) // like.numel())
    with torch.enable_grad():
        answers = vmap(one, chunk_size=at_once)(torch.eye(width, dtype=like.dtype, device=like.device))
    return {name: answer.to(dtype).transpose(0, 1).contiguous() for name, answer in zip(heard, answers, strict=True)}


def _by_token(x: Tensor) -> Float[Tensor, "T _"]:
    """Of what flows through a tap, one row for each token, all heads side by side."""
    return x[0] if x.ndim == 3 else x[0].transpose(0, 1).flatten(1)
