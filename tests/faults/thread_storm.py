"""A thread storm: many threads call every verb of the same loaded models, and each result is compared bit for bit.

The expected result of each call is that of the same call in one thread. The suite runs a short storm; the long form is

    python tests/faults/campaign.py thread_storm --cases 10000
"""

from __future__ import annotations

import dataclasses
import random
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fault_counts import FaultCounts
from tiny_models import TinyModels, build_models, draw_text

from regard.nn import edit, record

SWITCH_SECONDS = 1e-4
"""Time after which a thread yields to another: 50 times shorter than Python's, so that calls interleave more often."""


class Call(NamedTuple):
    """A call of one verb, with fixed arguments."""

    verb: str
    make: Callable[[], Any]


def make_calls(models: TinyModels, generator: random.Random, folder: Path) -> list[Call]:
    """Return one call of each kind on random texts."""
    text, other = draw_text(generator), draw_text(generator)
    texts = [draw_text(generator) for _ in range(12)]
    m, seed = models, generator.randrange(1000)
    masked = f"{text} [MASK] {other}"
    return [
        Call("translate", lambda: m.translator.translate(text, n_best=2)),
        Call("translate", lambda: m.translator.translate(texts[:3], beam=1)),
        Call("translate", lambda: m.recurrent.translate(text)),
        Call("translate", lambda: m.translator.translate(text, sample=True, top_k=5, seed=seed)),
        Call("force_decode", lambda: m.translator.force_decode(text, other)),
        Call("generate", lambda: m.language_model.generate(text, max_tokens=8, n=2, seed=seed)),
        Call("stream", lambda: list(m.language_model.stream(text, max_tokens=8, top_p=0.9, seed=seed))),
        Call("fill", lambda: m.masked.fill(masked)),
        Call("next_sentence", lambda: m.masked.next_sentence(text, other)),
        Call("classify", lambda: m.classifier.classify(text)),
        Call("classify", lambda: m.classifier.classify(texts)),
        Call("tag", lambda: m.tagger.tag(text)),
        Call("tag", lambda: m.tagger.tag(texts)),
        Call("answer", lambda: m.answerer.answer(text, " ".join(texts[:3]), n_best=2)),
        Call("embed", lambda: m.masked.embed(texts)),
        Call("embed", lambda: m.classifier.embed(texts[:2], level="word", layers=(0, -1))),
        Call("match", lambda: m.masked.match(text, other)),
        Call("explain_match", lambda: m.masked.explain_match(text, other).values),
        Call("nearest", lambda: m.masked.nearest(text, texts, top=3)),
        Call("cluster", lambda: m.masked.cluster(texts, 2).labels),
        Call("evaluate", partial(m.language_model.evaluate, _write(folder / f"{seed}.txt", texts))),
        *_make_look_calls(models, text, other, folder),
    ]


def _make_look_calls(models: TinyModels, text: str, other: str, folder: Path) -> list[Call]:
    m, short, target = models, " ".join(text.split()[:3]), " ".join(other.split()[:3])
    looked: dict[str, Callable[[], Any]] = {
        "translator": lambda: m.translator.look(short, target),
        "recurrent": lambda: m.recurrent.look(short, target),
        "language model": lambda: m.language_model.look(short),
        "masked": lambda: m.masked.look(f"{short} [MASK]"),
        "classifier": lambda: m.classifier.look(short),
        "tagger": lambda: m.tagger.look(short),
        "answerer": lambda: m.answerer.look(short, other),
    }
    quick = [Call(f"look {name}", partial(_attention_of, look)) for name, look in looked.items()]
    return [
        *quick,
        Call("look attribution", lambda: m.classifier.look(short).attribution()),
        Call("look attribution", lambda: m.translator.look(short, target).attribution(stack="decoder", estimate=2)),
        Call("look attribution", lambda: m.recurrent.look(short, target).attribution(estimate=2)),
        Call("look gradients", lambda: m.tagger.look(short).gradients()),
        Call("look gradients", lambda: m.recurrent.look(short, target).gradients()),
        Call("look alternatives", lambda: m.answerer.look(short, other).alternative_attention()),
        Call("look save", lambda: _saved(m.tagger.look(short), folder, ".json")),
        Call("look save", lambda: _saved(m.classifier.look(short), folder, ".png")),
        Call("look faithfulness", lambda: m.classifier.look(short).faithfulness(estimate=2)),
        Call("record", partial(_record, m, text)),
        Call("edit", partial(_edit, m, text)),
    ]


def _attention_of(look: Callable[[], Any]) -> list[torch.Tensor]:
    seen = look()
    return [each for kind in seen.kinds for each in (seen.attention(kind), seen.effective_attention(kind))]


def _saved(seen: Any, folder: Path, suffix: str) -> bytes:
    """Return the file that a view is saved as; each thread has its own."""
    path = folder / f"{threading.get_ident()}{suffix}"
    seen.save(path, "attention")
    return path.read_bytes()


def _record(models: TinyModels, text: str) -> dict[str, torch.Tensor]:
    with record(models.classifier.network, "*") as recorded:
        models.classifier.classify(text)
    return recorded


def _edit(models: TinyModels, text: str) -> Any:
    with edit(models.translator.network, "decoder.*.cross_attention.weights", lambda weights: weights.roll(1, -1)):
        return models.translator.translate(text)


def _write(path: Path, texts: list[str]) -> str:
    path.write_text("\n".join(texts))
    return str(path)


def to_exact(result: Any) -> Any:
    """Return a result as nested tuples that are equal only if it is, bit for bit."""
    if isinstance(result, torch.Tensor):
        return to_exact(result.detach().cpu().numpy())
    if isinstance(result, np.ndarray):
        return str(result.dtype), result.shape, result.tobytes()
    if isinstance(result, float):
        return result.hex()
    if dataclasses.is_dataclass(result):
        return tuple(to_exact(getattr(result, field.name)) for field in dataclasses.fields(result))
    if isinstance(result, dict):
        return tuple((key, to_exact(value)) for key, value in result.items())
    return tuple(map(to_exact, result)) if isinstance(result, list | tuple) else result


def run(n_calls: int, seed: int = 0, n_threads: int = 8, n_variants: int = 8, device: str = "cpu") -> FaultCounts:
    """Call every verb from many threads; count calls that raise, or differ from the call in one thread."""
    counts, generator, models = FaultCounts("thread storm"), random.Random(seed), build_models(device)
    with tempfile.TemporaryDirectory() as folder:
        calls = [call for _ in range(n_variants) for call in make_calls(models, generator, Path(folder))]
        expected = [to_exact(call.make()) for call in calls]

        def check(number: int) -> tuple[str, str]:
            """Return the kind of fault and its traceback; nothing if all is well."""
            try:
                return ("" if to_exact(calls[number].make()) == expected[number] else "silent"), "other result"
            except Exception:
                return "tracebacks", traceback.format_exc()

        drawn = [number % len(calls) for number in range(n_calls)]
        generator.shuffle(drawn)
        with _switch_often(), ThreadPoolExecutor(n_threads) as pool:
            for number, (outcome, description) in zip(drawn, pool.map(check, drawn), strict=True):
                counts.count_case(calls[number].verb)
                if outcome:
                    counts.add_fault(outcome, f"{calls[number].verb}: {description}")
    return counts


@contextmanager
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
