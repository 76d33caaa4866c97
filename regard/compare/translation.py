"""Translation by the length of sentences: recurrence without attention, with it, and the Transformer (SPEC 4.1-4.3).

All are trained on the same pairs for as many steps, with about as many parameters; the test sentences are sorted
into buckets by the words of their source, and each bucket has a BLEU of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard import api
from regard.compare import corpora, runs
from regard.compare.charts import Chart, Line, draw_charts
from regard.compare.contenders import ADDITIVE, FIXED, RECURRENT, TRANSFORMERS, USUAL, Shape, sized
from regard.compare.corpora import Amount
from regard.compare.part import Finding, Found, Part, Setting, Shown, Table, either
from regard.data.buckets import windows
from regard.metrics import translation_score
from regard.models.families import PAIRS
from regard.text.pairs import read_pairs

BUCKETS = 5

CLEAR = 2.0
"""BLEU must be so far apart to be told apart, on however many sentences."""

POOR = 10.0
"""A BLEU up to which a model has learned too little to compare anything."""


@dataclass(frozen=True)
class Size:
    """How much text, which shapes, and how they are trained."""

    amount: Amount
    transformer: Shape
    recurrent: Shape
    tokenizer: dict[str, Any]
    train: dict[str, Any]


SIZES = {
    "quick": Size(
        Amount(6_000, 60, 200, 3),
        {"preset": "tiny", "d_model": 64, "d_ff": 256, "n_layers": 2, "n_decoder_layers": 1, "dropout": 0.0},
        {"preset": "tiny", "n_layers": 1, "n_decoder_layers": 1, "dropout": 0.0},
        {"vocabulary": 512},
        {"steps": 400, "batch_tokens": 768, "learning_rate": 5e-3, "warmup": 40},
    ),
    "full": Size(
        Amount(40_000, 200, 1000, 6),
        {"preset": "tiny", "dropout": 0.0},
        {"preset": "tiny", "dropout": 0.0},
        {"vocabulary": 1024},
        {"steps": 2500, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup": 250},
    ),
}


def measure(setting: Setting, _: Mapping[str, Found]) -> Found:
    """Train all three, and translate the test sentences greedily."""
    size, folder = SIZES[setting.pace], setting.out / "translation"
    split = corpora.pairs(setting, size.amount, folder)
    sources, references = map(list, zip(*read_pairs(split.test), strict=True))
    edges = bucket_edges([len(source.split()) for source in sources], BUCKETS)
    models = []
    for trained in _trained(size, split, folder, setting):
        written = translated(trained.path, sources, setting.device)
        lines = [f"{' '.join(text.splitlines())}\n" for text in written]  # one each, though a model may write an end
        (folder / f"{trained.path.name}.translated").write_text("".join(lines), "utf-8")
        buckets = by_bucket(sources, written, references, edges)
        models.append({**trained.facts(), **_scores(written, references), "buckets": buckets})
    counts = {"n_train": split.n_train, "n_valid": split.n_valid, "n_test": split.n_test}
    return {"origin": split.origin, **counts, "edges": edges, "models": models}


def _trained(size: Size, split: corpora.Split, folder: Path, setting: Setting) -> Iterator[runs.Trained]:
    """The models one by one; those after the first are as large as it turned out to be on this text."""
    tokenizer = {} if setting.data else size.tokenizer
    train = {**size.train, "seed": setting.seed}

    def run(name: str, model: Shape) -> runs.Trained:
        return runs.train(name, runs.recipe("translate", split, model, tokenizer, train), folder, setting.device)

    yield (first := run(USUAL, {**size.transformer, **TRANSFORMERS[USUAL]}))
    vocabulary = first.settings["tokenizer"]["vocabulary"]
    for name in (FIXED, ADDITIVE):
        yield run(name, sized(PAIRS, {**size.recurrent, **RECURRENT[name]}, vocabulary, first.parameters))


def translated(path: Path, sources: Sequence[str], device: str) -> list[str]:
    """What the model in a run makes of each source, greedily."""
    found = api.load(path, device=device).stream(windows(sources), aligned=False, beam=1, batch=64)
    return [best[0].text for _, best in found]


def bucket_edges(lengths: Sequence[int], most: int) -> list[int]:
    """The shortest length of each bucket, so that all hold about as many; fewer where lengths are often the same."""
    ordered = sorted(lengths)
    return sorted({ordered[len(ordered) * number // most] for number in range(most)})


def by_bucket(
    sources: Sequence[str], written: Sequence[str], references: Sequence[str], edges: Sequence[int]
) -> list[dict[str, Any]]:
    """The scores of each bucket, with the words of its shortest and its longest source."""
    found = []
    for low, above in pairwise([*edges, 10**9]):
        chosen = [i for i, source in enumerate(sources) if low <= len(source.split()) < above]
        longest = max(len(sources[i].split()) for i in chosen)
        scores = _scores([written[i] for i in chosen], [references[i] for i in chosen])
        found.append({"from": low, "to": longest, "n": len(chosen), **scores})
    return found


def _scores(written: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    scores = translation_score(written, references)
    return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact, "signature": scores.bleu_signature}


def findings(found: Found) -> list[Finding]:
    """Which of the claims held in these scores."""
    models = {each["name"]: each for each in found["models"]}
    return [
        _falls(models[FIXED]),
        _longest(models, ADDITIVE, FIXED, "Attention helps recurrence most with long sentences."),
        _above(models, USUAL, FIXED),
        _above(models, USUAL, ADDITIVE),
    ]


def clear(n_sentences: int, least: float = CLEAR) -> float:
    """How far apart the scores of so many sentences must be: about their 95 % interval, to either side."""
    return max(least, 60 / math.sqrt(n_sentences))


def unclear(held: bool | None, apart: float, *, poor: bool, alone: bool = False) -> str:
    """Why scores cannot tell, where they cannot: models learned too little, one bucket is `alone`, or it is noise."""
    if held is not None:
        return ""
    if poor:
        return f"; too little was learned to tell (scores below {POOR:g})"
    return "; all sentences are about as long" if alone else f"; only {apart:.1f} apart would be clear"


def _falls(model: Mapping[str, Any]) -> Finding:
    """The claim is of one vector: what it makes of short sentences it no longer makes of long ones."""
    first, last = model["buckets"][0], model["buckets"][-1]
    short, long, apart = first["bleu"], last["bleu"], clear(min(first["n"], last["n"]))
    poor = max(short, long) < POOR
    held = None if poor else either(short - long > apart, long - short > apart)
    return Finding(
        "With one fixed vector, quality falls as sentences grow.",
        held,
        f"{model['name']}: BLEU {short:.1f} with {_words(first)}, {long:.1f} with {_words(last)}"
        f"{unclear(held, apart, poor=poor, alone=first is last)}.",
    )


def _longest(models: Mapping[str, Any], one: str, other: str, claim: str) -> Finding:
    """Whether what one gains over the other is more in the longest bucket than in the shortest."""
    gains = [a["bleu"] - b["bleu"] for a, b in zip(models[one]["buckets"], models[other]["buckets"], strict=True)]
    first, last = models[one]["buckets"][0], models[one]["buckets"][-1]
    more, apart = gains[-1] - gains[0], clear(min(first["n"], last["n"]))
    poor = min(models[one]["bleu"], models[other]["bleu"]) < POOR
    held = None if poor else either(more > apart, more < -apart)
    return Finding(
        claim,
        held,
        f"{one} gains {gains[0]:+.1f} BLEU with {_words(first)} and {gains[-1]:+.1f} with {_words(last)}"
        f"{unclear(held, apart, poor=poor, alone=first is last)}.",
    )


def _above(models: Mapping[str, Any], one: str, other: str) -> Finding:
    a, b = models[one], models[other]
    ahead, apart = a["bleu"] - b["bleu"], clear(sum(bucket["n"] for bucket in a["buckets"]))
    poor = max(a["bleu"], b["bleu"]) < POOR
    held = None if poor else either(ahead > apart, ahead < -apart)
    long = f"{a['buckets'][-1]['bleu']:.1f} against {b['buckets'][-1]['bleu']:.1f}"
    return Finding(
        f"The Transformer translates better than recurrence: {one} against {other}.",
        held,
        f"BLEU {a['bleu']:.1f} against {b['bleu']:.1f}, with {_words(a['buckets'][-1])} {long}"
        f"{unclear(held, apart, poor=poor)}.",
    )


def _words(bucket: Mapping[str, Any]) -> str:
    low, high = bucket["from"], bucket["to"]
    return f"{low} to {high} words" if low < high else "1 word" if low == 1 else f"{low} words"


def show(found: Found) -> Shown:
    """Tables and findings."""
    models = found["models"]
    counts = [each["parameters"] for each in models]
    method = (
        f"{found['origin']}; {found['n_train']:,} to train on, {found['n_test']:,} to test on. Each model was trained "
        f"by the recipe in translation/ for {models[0]['steps']:,} steps in float32 on one seed; "
        f"{min(counts):,} to {max(counts):,} parameters. Test sentences are translated greedily, sorted by the words "
        f"of their source into buckets of about one size. {models[0]['signature']}."
    )
    buckets = models[0]["buckets"]
    columns = ["model", "parameters", "all", *map(_words, buckets)]
    bleu = [
        [m["name"], f"{m['parameters']:,}", f"{m['bleu']:.1f}", *(f"{b['bleu']:.1f}" for b in m["buckets"])]
        for m in models
    ]
    exact = [
        [
            m["name"],
            f"{m['parameters']:,}",
            f"{100 * m['exact']:.1f}",
            *(f"{100 * b['exact']:.1f}" for b in m["buckets"]),
        ]
        for m in models
    ]
    n = ["sentences", "", f"{found['n_test']:,}", *(f"{b['n']:,}" for b in buckets)]
    tables = [
        Table("BLEU by words in the source", columns, [*bleu, n]),
        Table("Translated exactly, in %", columns, [*exact, n]),
    ]
    return Shown(method, findings(found), tables)


def draw(found: Found, path: Path) -> Path:
    """BLEU and exact translations against length, both from 0: a point for each bucket, at the middle of it."""
    charts = []
    for title, score, times in (("BLEU", "bleu", 1), ("translated exactly, %", "exact", 100)):
        lines = {
            each["name"]: Line(
                [(bucket["from"] + bucket["to"]) / 2 for bucket in each["buckets"]],
                [times * bucket[score] for bucket in each["buckets"]],
            )
            for each in found["models"]
        }
        charts.append(Chart(title, lines))
    return draw_charts(charts, path, "words in the source", "score", columns=2, limits=(0.0, None), shared=False)


PART = Part(
    title="Translation by length",
    claim="A recurrent encoder-decoder with one fixed vector translates long sentences worse than short ones; "
    "attention mends that, and the Transformer, which is nothing but attention, translates best.",
    source="Bahdanau et al. 2015, figure 2; Vaswani et al. 2017, table 2",
    measure=measure,
    show=show,
    draw=draw,
)
