"""Bit flips at random places of every file of run directories.

Each must be noticed, by one line that names the file, when the run is loaded, described or resumed; nothing that loads
may differ; and what the message suggests must work. Token stores are checked by themselves. The long form is

    python tests/faults/campaign.py bit_flips --cases 500
"""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fault_counts import FaultCounts
from tiny_runs import CPU, merged, recipe, trained

from regard.config import Tables
from regard.errors import RegardError
from regard.models.weights import collect_weights
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import summarise_training
from regard.training.loop import Trainer
from regard.training.prepare import prepare_run

DELETABLE = ("model.safetensors", "log.jsonl", "train.json", "metrics.json")
"""Files that a user without a copy may delete to go on."""


class PristineRun(NamedTuple):
    """A finished run that is copied for each case, and its weights."""

    path: Path
    task: str
    weights: dict[str, bytes]

    def files(self) -> list[str]:
        paths = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        return [name for path in paths if not (name := str(path.relative_to(self.path))).startswith("store/")]


def train_runs(folder: Path) -> list[PristineRun]:
    """Train a translator with two tokenizers and a classifier with labels, both with snapshots."""
    averaging: Tables = {"train": {"average": 2, "steps": 4, "validate_every": 2, "save_every": 2}}
    separate: Tables = {"tokenizer": {"joint": False, "vocabulary": 262}}
    table = folder / "labelled.tsv"
    table.write_text(
        "text\tlabel\n" + "".join(f"{n} {n % 7} {n % 3}\t{'odd' if n % 2 else 'even'}\n" for n in range(40))
    )
    classify = merged(recipe(folder, averaging), {"task": {"name": "classify"}, "data": {"train": [str(table)]}})
    del classify["data"]["valid"], classify["tokenizer"], classify["model"]["n_decoder_layers"]
    tables = {"translate": recipe(folder, averaging, separate), "classify": classify}
    for task, each in tables.items():
        trained(each, folder / task)
    return [PristineRun(folder / task, task, read_weights(folder / task)) for task in tables]


def read_weights(path: Path) -> dict[str, bytes]:
    model = RunDirectory(path).load()[2]
    return {name: weight.numpy().tobytes() for name, weight in collect_weights(model).items()}


def describe(path: Path) -> Any:
    run = RunDirectory(path)
    run_config, task, _ = run.load()
    return summarise_training(run, run_config, task.validation_metric)


def resume(path: Path, task: str, **train: Any) -> None:
    tables: Tables = {"task": {"name": task}, "train": train}
    prepared = prepare_run(tables, path, CPU, where="test", resume=True)
    list(Trainer(prepared).train())


@contextmanager
def copied(run: PristineRun, folder: Path) -> Iterator[Path]:
    path = folder / "damaged"
    shutil.copytree(run.path, path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def flip_bit(path: Path, generator: random.Random) -> str:
    """Flip one bit of a file; return which."""
    content = bytearray(path.read_bytes())
    position, bit = generator.randrange(len(content)), generator.randrange(8)
    content[position] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {position} of {len(content)}"


def check_case(run: PristineRun, path: Path, name: str, flipped: str, counts: FaultCounts) -> None:
    """Use a run with a damaged file in every way, then do what the message suggests."""
    where, messages = f"{run.task}/{name}, {flipped}", []
    uses: list[Callable[[], Any]] = [
        lambda: read_weights(path),
        lambda: describe(path),
        lambda: resume(path, run.task),
    ]
    for number, use in enumerate(uses):
        try:
            result = use()
        except RegardError as error:
            messages.append(str(error))
        except BaseException as error:  # a panic of a library in Rust is no Exception
            counts.add_fault("tracebacks", f"{where}: {error!r}")
        else:
            if number == 0 and result != run.weights:
                counts.add_fault("silent", f"{where}: other weights are loaded")
    if not any(message.startswith(f"{path / name}: ") and "\n" not in message for message in messages):
        counts.add_fault("silent", f"{where}: {messages or 'not noticed'}")
    try:
        recover(run, path, name)
    except Exception as error:
        counts.add_fault("lost", f"{where}: {error!r}")


def recover(run: PristineRun, path: Path, name: str) -> None:
    """Do what a user without a copy can do; raise an error if that does not work."""
    if name in DELETABLE:
        (path / name).unlink()
        resume(path, run.task)
        read_weights(path)
    elif name.startswith("snapshots/"):
        resume(path, run.task, average=1)
    elif name == "train.safetensors":
        assert read_weights(path) == run.weights


def run(n: int, seed: int = 0) -> FaultCounts:
    """Flip one bit in each of n cases, in every file in turn; return the counts."""
    counts, generator = FaultCounts("bit flips"), random.Random(seed)
    with TemporaryDirectory() as name, redirect_stderr(io.StringIO()):
        folder = Path(name)
        files = [(each, file) for each in train_runs(folder) for file in each.files()]
        for number in range(n):
            each, file = files[number % len(files)]
            with copied(each, folder) as path:
                check_case(each, path, file, flip_bit(path / file, generator), counts)
            counts.count_case(file.partition("/")[0])
    return counts
