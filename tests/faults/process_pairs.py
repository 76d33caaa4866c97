"""Two processes that train into one directory, begun at almost the same moment, in turn fresh and resuming.

One of them must be refused, by one line that names the other, or come when the other has ended; the run directory must
in the end be, bit for bit, that of a training that was alone. The long form is

    python tests/faults/campaign.py process_pairs --cases 20
"""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from fault_counts import FaultCounts
from forks import Ended, Forks
from run_faults import TinyTraining, started_forks, wait_for_end
from tiny_runs import CPU

from regard.errors import RegardError
from regard.training.loop import Trainer
from regard.training.prepare import prepare_run

MAX_DELAY_SECONDS = 1.5
"""One process begins at most so long after the other, which is about the time of a training."""


def train_here(training: TinyTraining, out: Path, *, resume: bool) -> str:
    """Train in this process; return the message of the error that prevents it, or ""."""
    try:
        list(Trainer(prepare_run(training.tables, out, CPU, where="test", resume=resume)).train())
    except RegardError as error:
        return str(error)
    return ""


def check_pair(training: TinyTraining, forks: Forks, generator: random.Random, counts: FaultCounts) -> None:
    """Train in this process and in another one at once."""
    out, resume = training.folder / "pair", generator.random() < 0.5
    if resume:
        interrupt_training(training, forks, out, generator)
    delay = generator.choice([-1, 1]) * MAX_DELAY_SECONDS * generator.random() ** 2
    command = [part for part in training.command(out) if resume or part != "--resume"]

    def start_other() -> int:
        time.sleep(max(0.0, -delay))
        return forks.start(*command)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(start_other)
        time.sleep(max(0.0, delay))
        refusal = train_here(training, out, resume=resume)
        ended, hung = wait_for_end(forks, other.result())
    counts.count_case()
    if hung:
        counts.add_fault("hangs", f"after {delay:.3f} s")
    judge_pair(ended, refusal, resume=resume, counts=counts)
    if difference := training.describe_difference(out):
        counts.add_fault("lost", f"resume {resume}, after {delay:.3f} s: {difference}; {refusal}; {ended.err}")
    training.remove("pair")


def interrupt_training(training: TinyTraining, forks: Forks, out: Path, generator: random.Random) -> None:
    """Begin a training and kill it, so that it can be resumed; the file of its lock stays."""
    ended = forks.run(*training.command(out), kill_at=generator.randint(12, 30), within=out)
    assert ended.status == -signal.SIGKILL, ended.err


def judge_pair(ended: Ended, refusal: str, *, resume: bool, counts: FaultCounts) -> None:
    """Count a pair as refused or as one after the other; both at once, or any other error, is a fault."""
    taken = "already holds a run"  # what a fresh training says once the other has ended
    error = "".join(line for line in ended.err.splitlines() if line.startswith("error: "))
    if "Traceback" in ended.err:
        counts.add_fault("tracebacks", ended.err)
    elif refusal and error:
        counts.add_fault("lost", f"both refused: {refusal}; {error}")
    elif f"in use by process {os.getpid()} on " in error:
        counts.add_detail("other refused")
    elif "in use by process " in refusal:
        counts.add_detail("this refused")
    elif (taken in error or taken in refusal) or (resume and not error and not refusal):
        counts.add_detail("one after the other")
    else:
        counts.add_fault("silent", f"both trained: {ended}; {refusal}")


def run(n_pairs: int, seed: int = 0, forks: Forks | None = None) -> FaultCounts:
    """Train in n pairs of processes; return the counts."""
    counts, generator = FaultCounts("process pairs"), random.Random(seed)
    with TemporaryDirectory() as name, started_forks(forks) as opened:
        training = TinyTraining(Path(name))
        for _ in range(n_pairs):
            check_pair(training, opened, generator, counts)
    return counts
