"""`regard.compare_architectures`: run a comparison from Python; the result shows its report in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.compare import EXPERIMENTS, run_comparison
from regard.compare.directory import ExperimentResult
from regard.compare.experiment import ComparisonSettings, Finding, Measurements
from regard.compare.terminal import format_experiment
from regard.errors import InputError

IFRAME_HEIGHT = 800
"""Height of the report in a notebook, in pixels."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The finished experiments of a comparison, by name; a notebook displays the report."""

    path: Path
    results: Mapping[str, ExperimentResult]

    @property
    def report_path(self) -> Path:
        """The report of all experiments in the directory, one self-contained HTML page."""
        return self.path / "report.html"

    @property
    def findings(self) -> dict[str, list[Finding]]:
        """The findings of each experiment: `claim`, `verdict` ("held", "did not hold", "cannot tell"), `evidence`."""
        return {name: list(EXPERIMENTS[name].summarise(self.measurements(name)).findings) for name in self.results}

    def measurements(self, name: str) -> Measurements:
        """Return all numbers of an experiment, as in its JSON file.

        Args:
            name: The experiment, as in "cost".
        """
        return self.results[name].measurements

    def __str__(self) -> str:
        return "\n".join(
            line
            for name in self.results
            for line in format_experiment(EXPERIMENTS[name], EXPERIMENTS[name].summarise(self.measurements(name)))
        )

    def __repr__(self) -> str:
        verdicts = [finding.verdict for findings in self.findings.values() for finding in findings]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        return f"Comparison({str(self.path)!r}, {', '.join(self.results)}: {counts})"

    def _repr_html_(self) -> str:
        page = html.escape(self.report_path.read_text(encoding="utf-8"))
        style = f"width: 100%; height: {IFRAME_HEIGHT}px; border: 0"
        return f'<iframe title="comparison" sandbox="" style="{style}" srcdoc="{page}"></iframe>'


def compare_architectures(
    out: str | Path = "compare",
    *,
    only: str | Sequence[str] = (),
    quick: bool = False,
    data: Sequence[str] = (),
    tagged: str = "",
    labelled: str = "",
    questions: str = "",
    seed: int = 0,
    device: str = "auto",
) -> Comparison:
    """Test the claims for the Transformer over recurrence on this machine, as `regard compare` does.

    Args:
        out: The directory to create, or to resume: finished experiments in it are not measured again.
        only: The experiment or experiments to run, of "cost", "recall", "distance", "translation", "flops" and
            "positions"; by default all but "positions".
        quick: Train smaller models on fewer examples for fewer steps.
        data: Two parallel files to translate; by default synthetic text.
        tagged: A file of tagged words for "positions"; by default synthetic text.
        labelled: A table of labelled texts for "positions"; by default synthetic text.
        questions: A file of questions with answers for "positions", as SQuAD's; by default synthetic text.
        seed: Fixes synthetic text, initial weights and the order of examples.
        device: "auto" (a GPU where one is available), "cpu", "cuda" or "mps".

    Returns:
        A `Comparison`: `findings` (claims with their verdicts), `measurements(name)` (all numbers), `report_path`.

    Example:
        >>> comparison = regard.compare_architectures("costs", only="cost", quick=True)
        >>> for finding in comparison.findings["cost"]:
        ...     print(finding.verdict, finding.claim)
    """
    if isinstance(data, str) or len(data) not in (0, 2):
        raise InputError(f"data {data!r}: expected two parallel files, as in ['train.en', 'train.fr']")
    files = tuple(map(str, data))
    settings = ComparisonSettings(
        Path(out), "quick" if quick else "full", seed, device, files, str(tagged), str(labelled), str(questions)
    )
    names = [only] if isinstance(only, str) else list(only)
    return Comparison(settings.out, dict(run_comparison(settings, names, command="regard.compare_architectures")))
