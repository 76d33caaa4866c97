"""Long-range dependence: how well a text is copied, by how far back each of its tokens lies (SPEC 9.2).

One fixed vector has to hold the whole text; attention can look back at it. The texts, and how models learn to copy
them, are in copying.py. Every encoder-decoder and language model of SPEC 4 takes part, with about as many parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from regard.compare.charts import Chart, Line, draw_charts
from regard.compare.contenders import (
    ADDITIVE,
    DOT,
    FAMILIES,
    FIXED,
    LANGUAGE_MODELS,
    RECURRENT,
    RECURRENT_LM,
    TRANSFORMER_LM,
    TRANSFORMERS,
    USUAL,
    Shape,
    build,
    n_parameters,
    sized,
)
from regard.compare.copying import Copier, Size, one_thread
from regard.compare.part import Finding, Found, Part, Setting, Shown, Table, either
from regard.models.blocks import initialise
from regard.models.families import NEXT
from regard.progress import bar
from regard.train.device import device_named

CLEAR = 0.05
"""Accuracies must be so far apart, and further than three standard errors, to be told apart."""

WHOLE = 0.95
"""An accuracy from which on we say that a text was recalled."""


SIZES = {
    "quick": Size(12, (1, 2, 4, 6, 8, 10, 12), 16, 400, 32, 250, 6e-3, 48, 1),
    "full": Size(32, (1, 2, 4, 8, 12, 16, 20, 24, 28, 32), 32, 1500, 64, 1000, 3e-3, 64, 2),
}


def measure(setting: Setting, _: Mapping[str, Found]) -> Found:
    """Train every model on the same texts, and test it at every distance."""
    size, device = SIZES[setting.pace], device_named(setting.device)
    shapes, models = _shapes(size), []
    with one_thread(), bar("copying: steps of training", len(shapes) * size.steps) as shown:
        for name, shape in shapes.items():
            model = build(FAMILIES[name], shape, size.vocabulary)
            initialise(model, torch.Generator().manual_seed(setting.seed), model.config.deviation)
            copier = Copier(model, size, setting.seed, device, joined=FAMILIES[name] is NEXT)
            losses = []
            for loss in copier.learn():
                losses.append(round(loss, 4))
                shown.advance()
            kept = losses[:: max(1, size.steps // 100)]
            about = {"name": name, "shape": shape, "parameters": n_parameters(model)}
            models.append({**about, "right": copier.test(), "losses": kept})
    return {**vars(size), "distances": list(size.distances), "models": models}


def _shapes(size: Size) -> dict[str, Shape]:
    """Every contender, with about as many parameters as the usual Transformer."""
    both = {"n_decoder_layers": 1, "n_layers": size.layers, "dropout": 0.0, "n_positions": size.longest}
    heads = {"n_heads": 2, "d_ff": 2 * size.width, "d_model": size.width}
    usual = {**both, **heads, **TRANSFORMERS[USUAL]}
    wanted = n_parameters(build(FAMILIES[USUAL], usual, size.vocabulary))

    def same(name: str, shape: Shape) -> Shape:
        return sized(FAMILIES[name], shape, size.vocabulary, wanted)

    one_way = {**both, "n_layers": 1, "directions": "forward"}
    alone = {"n_layers": size.layers + 1, "dropout": 0.0, "n_positions": 2 * size.longest}
    return {
        **{name: same(name, {**one_way, **shape}) for name, shape in RECURRENT.items()},
        **{name: {**usual, **shape} for name, shape in TRANSFORMERS.items()},
        TRANSFORMER_LM: same(TRANSFORMER_LM, {**alone, **heads, **LANGUAGE_MODELS[TRANSFORMER_LM]}),
        RECURRENT_LM: same(RECURRENT_LM, {**alone, **LANGUAGE_MODELS[RECURRENT_LM]}),
    }


class Recalled:
    """Accuracies by model and distance."""

    def __init__(self, found: Found) -> None:
        self.distances: list[int] = found["distances"]
        self.tested: int = found["tested"]
        self.chance = 1 / found["tokens"]
        self.accuracy = {
            each["name"]: [n / self.tested / d for n, d in zip(each["right"], self.distances, strict=True)]
            for each in found["models"]
        }
        self.parameters = {each["name"]: each["parameters"] for each in found["models"]}

    def far(self, name: str) -> float:
        """The accuracy at the greatest distance."""
        accuracy: float = self.accuracy[name][-1]
        return accuracy

    def learned(self, *names: str) -> bool:
        """Whether one of the models recalls the shortest texts at least; else they have learned too little to judge."""
        return any(self.accuracy[name][0] >= WHOLE for name in names)

    def error(self, *accuracies: float) -> float:
        """Three standard errors of a difference. Texts count, not tokens: those of one text are not independent."""
        return 3 * math.sqrt(sum(each * (1 - each) for each in accuracies) / self.tested)

    def above(self, one: float, other: float) -> bool:
        """Whether one accuracy is clearly higher."""
        return one - other > self.clear(one, other)

    def clear(self, one: float, other: float) -> float:
        """How far apart two accuracies must be."""
        return max(CLEAR, self.error(one, other))


def findings(found: Found) -> list[Finding]:
    """Which of the claims held in these accuracies."""
    recalled = Recalled(found)
    transformers = [name for name in TRANSFORMERS if "none" not in name]
    return [
        _forgets(recalled, FIXED),
        *(
            _beats(recalled, name, FIXED, "Attention lets recurrence recall more than one vector holds")
            for name in (ADDITIVE, DOT)
        ),
        *(
            _beats(recalled, USUAL, name, "A Transformer recalls at least as much from afar", ties=True)
            for name in (FIXED, ADDITIVE, DOT)
        ),
        *(_reaches(recalled, name) for name in transformers),
        _beats(recalled, USUAL, "Transformer, none", "Without positions a Transformer cannot know the order"),
        _beats(recalled, TRANSFORMER_LM, RECURRENT_LM, "A Transformer recalls more from afar as a language model too"),
    ]


def _forgets(recalled: Recalled, name: str) -> Finding:
    near, far = recalled.accuracy[name][0], recalled.far(name)
    ends = f"n = {recalled.distances[0]} and {far:.1%} at n = {recalled.distances[-1]}"
    learned = recalled.learned(name)
    held = either(recalled.above(near, far), far >= WHOLE) if learned else None
    said = f"{name}: {near:.1%} at {ends}{_unlearned(learned)}."
    return Finding("One fixed vector holds less of a text the longer it is.", held, said)


def _reaches(recalled: Recalled, name: str) -> Finding:
    lowest = min(recalled.accuracy[name])
    where = recalled.distances[recalled.accuracy[name].index(lowest)]
    learned, apart = recalled.learned(name), recalled.error(lowest)
    held = either(lowest >= WHOLE, WHOLE - lowest > apart) if learned else None
    few = f", and only {apart:.1%} below that would be clear" if learned and held is None else ""
    return Finding(
        f"{name} positions: any distance is one step away, so none is lost.",
        held,
        f"at worst {lowest:.1%}, at n = {where}; from {WHOLE:.0%} on a text counts as recalled{few}"
        f"{_unlearned(learned)}.",
    )


def _beats(recalled: Recalled, one: str, other: str, claim: str, *, ties: bool = False) -> Finding:
    """Whether one is clearly above the other at the greatest distance, or with `ties` not noticeably below it.

    At no distance may it be clearly below.
    """
    a, b = recalled.far(one), recalled.far(other)
    learned, higher = recalled.learned(one, other), a - b > -CLEAR if ties else recalled.above(a, b)
    each = zip(recalled.distances, recalled.accuracy[one], recalled.accuracy[other], strict=True)
    below = [f"{n}" for n, mine, its in each if recalled.above(its, mine)]
    held = either(higher, bool(below)) if learned else None
    said = f"{a:.1%} against {b:.1%} at n = {recalled.distances[-1]}"
    if below:
        said += f"; clearly less at n = {', '.join(below)}"
    elif learned and held is None:
        said += f"; only {recalled.clear(a, b):.1%} apart would be clear"
    return Finding(f"{claim}: {one} against {other}.", held, f"{said}{_unlearned(learned)}.")


def _unlearned(learned: bool) -> str:
    return "" if learned else f"; too little was learned to tell: not even the shortest text is recalled to {WHOLE:.0%}"


def show(found: Found) -> Shown:
    """Tables and findings."""
    recalled = Recalled(found)
    counts = recalled.parameters.values()
    method = (
        f"Texts of 1 to {found['longest']} random tokens out of {found['tokens']}, read and then written again: n "
        f"steps lie between reading a token and writing it. {found['steps']:,} steps on {found['batch']} texts each, "
        f"the same texts for all, no dropout, one learning rate ({found['rate']:g}, cosine) and one seed for all; "
        f"{min(counts):,} to {max(counts):,} parameters. Encoders of recurrent models read from the left alone, so "
        f"that the distance is the same for every token. Tested on {recalled.tested:,} new texts of each length; a "
        "token counts as recalled where it is the likeliest, given the right ones before it. Chance is "
        f"{recalled.chance:.1%}. More training moves these curves: they compare models after the same number of steps."
    )
    rows = [
        [name, f"{recalled.parameters[name]:,}", *(f"{100 * each:.1f}" for each in accuracy)]
        for name, accuracy in recalled.accuracy.items()
    ]
    columns = ["model", "parameters", *(f"n = {distance}" for distance in recalled.distances)]
    return Shown(method, findings(found), [Table("Tokens recalled, in %, by distance n", columns, rows)])


def draw(found: Found, path: Path) -> Path:
    """Accuracy against distance."""
    recalled = Recalled(found)
    groups = {
        "recurrence and attention": [*RECURRENT, USUAL],
        "Transformers by their positions": list(TRANSFORMERS),
        "language models": list(LANGUAGE_MODELS),
    }
    charts = [
        Chart(
            title,
            {name: Line(recalled.distances, [100 * each for each in recalled.accuracy[name]]) for name in names},
            levels={"chance": 100 * recalled.chance},
        )
        for title, names in groups.items()
    ]
    return draw_charts(charts, path, "distance n", "tokens recalled, %", columns=3, limits=(-3.0, 103.0))


PART = Part(
    title="Long-range dependence",
    claim="Whatever a recurrent model keeps of a text must pass through every step since; with one fixed vector, long "
    "texts do not fit. Attention reaches any token in one step, however far back it lies.",
    source="Bahdanau et al. 2015; Vaswani et al. 2017, section 4",
    measure=measure,
    show=show,
    draw=draw,
)
