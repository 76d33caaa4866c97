"""How a Transformer should know the order of its tokens: every scheme on a translation and a tagging task (SPEC 2).

A sweep of recipes that differ in ``model.positions`` alone; each is written down, trained and scored like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import api
from regard.compare import corpora, runs
from regard.compare.charts import Chart, Line, draw_charts
from regard.compare.contenders import SCHEMES, Shape
from regard.compare.corpora import Amount, Split
from regard.compare.part import Finding, Found, Part, Setting, Shown, Table, either
from regard.compare.translation import POOR, clear, unclear

NONE = "none"

CLEAR = {"translate": 2.0, "tag": 1.0}
"""Points of 100 that scores must be apart to be told apart, on however many sentences."""

TASKS = {"translate": "translation", "tag": "tagging"}
"""What to call them."""


@dataclass(frozen=True)
class Size:
    """How much text of each kind, which shapes, and how they are trained."""

    amounts: dict[str, Amount]
    models: dict[str, Shape]
    tokenizer: dict[str, Any]
    train: dict[str, Any]


SMALL = {"preset": "tiny", "d_model": 64, "d_ff": 256, "n_layers": 2, "dropout": 0.0}

SIZES = {
    "quick": Size(
        {"translate": Amount(6_000, 60, 200, 3), "tag": Amount(3_000, 60, 300, 3)},
        {"translate": {**SMALL, "n_decoder_layers": 1}, "tag": SMALL},
        {"vocabulary": 512},
        {"steps": 300, "batch_tokens": 768, "learning_rate": 5e-3, "warmup": 30},
    ),
    "full": Size(
        {"translate": Amount(40_000, 200, 1000, 4), "tag": Amount(10_000, 200, 1000, 4)},
        {"translate": {"preset": "tiny", "dropout": 0.0}, "tag": {"preset": "tiny", "dropout": 0.0}},
        {"vocabulary": 1024},
        {"steps": 1500, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 150},
    ),
}


def measure(setting: Setting, _: Mapping[str, Found]) -> Found:
    """Train each task with each scheme."""
    translate = _sweep("translate", corpora.pairs, setting, {} if setting.data else SIZES[setting.pace].tokenizer)
    return {"translate": translate, "tag": _sweep("tag", corpora.tagged, setting, {})}


def _sweep(task: str, read: Callable[[Setting, Amount, Path], Split], setting: Setting, tokenizer: Shape) -> Found:
    """One task with each scheme, on the same text."""
    size, folder = SIZES[setting.pace], setting.out / "positions" / task
    split, search = read(setting, size.amounts[task], folder), {"beam": 1} if task == "translate" else {}
    train, models = {**size.train, "seed": setting.seed}, []
    for scheme in SCHEMES:
        model = {**size.models[task], "positions": scheme}
        recipe = runs.recipe(task, split, model, tokenizer, train)
        trained = runs.train(scheme, recipe, folder, setting.device)
        scores = api.load(trained.path, device=setting.device).evaluate(list(split.test), **search)
        models.append({**trained.facts(), "scores": scores})
    return {"origin": split.origin, "n_train": split.n_train, "n_test": split.n_test, "models": models}


def score_of(task: str, scores: Mapping[str, Any]) -> tuple[str, float]:
    """What a task is judged by, out of 100: BLEU, the F1 of entities, or where there are none accuracy."""
    if task == "translate":
        return "BLEU", scores["bleu"]
    return ("entity F1", 100 * scores["f1"]) if "f1" in scores else ("accuracy", 100 * scores["accuracy"])


def findings(found: Found) -> list[Finding]:
    """Whether positions matter at all, and which scheme was best."""
    return [finding for task, about in found.items() for finding in _of_task(task, about)]


def _of_task(task: str, about: Mapping[str, Any]) -> list[Finding]:
    label, _ = score_of(task, about["models"][0]["scores"])
    scores = {each["name"]: score_of(task, each["scores"])[1] for each in about["models"]}
    bare = scores.pop(NONE)
    apart = clear(about["n_test"], CLEAR[task])
    return [_order_matters(task, label, scores, bare, apart), _sinusoids(task, label, scores, apart)]


def _order_matters(task: str, label: str, scores: dict[str, float], bare: float, apart: float) -> Finding:
    """Of every scheme it is claimed, so the worst of them decides."""
    ahead, poor = min(scores.values()) - bare, max(*scores.values(), bare) < POOR
    held = None if poor else either(ahead > apart, ahead < -apart)
    ranked = ", ".join(f"{name} {scores[name]:.1f}" for name in sorted(scores, key=lambda name: -scores[name]))
    return Finding(
        f"Order matters in {TASKS[task]}: every scheme is better than none.",
        held,
        f"{label}: {ranked}, none {bare:.1f}{unclear(held, apart, poor=poor)}.",
    )


def _sinusoids(task: str, label: str, scores: dict[str, float], apart: float) -> Finding:
    """As well as learned ones: not noticeably worse; to be worse, they must be clearly `apart`."""
    own, learned = scores["sinusoidal"], scores["learned"]
    poor, best = max(own, learned) < POOR, max(scores, key=lambda name: scores[name])
    held = None if poor else either(own > learned - CLEAR[task], own < learned - apart)
    return Finding(
        f"In {TASKS[task]}, sinusoidal positions do as well as learned ones.",
        held,
        f"{label} {own:.1f} against {learned:.1f}{unclear(held, apart, poor=poor)}; the best here was {best}, "
        f"{scores[best]:.1f}.",
    )


def show(found: Found) -> Shown:
    """Tables and findings."""
    about = [
        f"{TASKS[task].capitalize()}: {each['origin']}; {each['n_train']:,} to train on, {each['n_test']:,} to test on"
        for task, each in found.items()
    ]
    steps = found["translate"]["models"][0]["steps"]
    method = (
        f"{'. '.join(about)}. Recipes that differ in model.positions alone, in positions/; {steps:,} steps, one seed. "
        "One run each: small differences may be chance."
    )
    return Shown(method, findings(found), [_table(task, about) for task, about in found.items()])


def _table(task: str, about: Mapping[str, Any]) -> Table:
    label = score_of(task, about["models"][0]["scores"])[0]
    second = "exact" if task == "translate" else "accuracy"
    more = [second] if second != label.lower() else []
    rows = [
        [
            each["name"],
            f"{each['parameters']:,}",
            f"{score_of(task, each['scores'])[1]:.1f}",
            *(f"{100 * each['scores'][name]:.1f}" for name in more),
            f"{each['curve'][-1]['valid_loss']:.3f}",
            f"{each['seconds']:.0f}",
        ]
        for each in about["models"]
    ]
    others = [f"{name} %" for name in more]
    columns = ["positions", "parameters", f"{label} (test)", *others, "loss (validation)", "seconds"]
    return Table(TASKS[task].capitalize(), columns, rows)


def draw(found: Found, path: Path) -> Path:
    """The loss on the validation data while each scheme was trained."""
    charts = [
        Chart(
            TASKS[task],
            {
                each["name"]: Line(
                    [line["step"] for line in each["curve"]], [line["valid_loss"] for line in each["curve"]]
                )
                for each in about["models"]
            },
        )
        for task, about in found.items()
    ]
    return draw_charts(charts, path, "steps", "loss (validation)", columns=2, shared=False)


PART = Part(
    title="Positions",
    claim="Attention alone sees a bag of tokens, so a Transformer must be told their order; sinusoidal positions do "
    "as well as learned ones.",
    source="Vaswani et al. 2017, section 3.5 and table 3, row E",
    measure=measure,
    show=show,
    draw=draw,
)
