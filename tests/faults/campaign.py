"""Run the fault campaigns in their long form and print one table: `make faults`.

    python tests/faults/campaign.py                                    # all; about half an hour on 2 cores
    python tests/faults/campaign.py kills bit_flips --cases 50 --seed 7
    python tests/faults/campaign.py --smoke --write faults.md          # a few cases of each; or faults.json

Each campaign is a module beside this one whose ``run(cases, seed)`` returns its `FaultCounts`. It runs in a process of
its own, with limits on time and memory; the exit status is 1 if there was any fault. strace is used where installed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("faults", "processes", "training")]

from fault_counts import FAULTS, FaultCounts  # noqa: E402 - beside this file


class CampaignSize(NamedTuple):
    """The number of cases of the long form and of the smoke test."""

    cases: int
    smoke: int


CAMPAIGNS = {
    "kills": CampaignSize(200, 1),
    "write_faults": CampaignSize(300, 2),
    "bit_flips": CampaignSize(500, 2),
    "process_pairs": CampaignSize(20, 1),
    "readers": CampaignSize(1000, 5),
    "options": CampaignSize(1000, 3),
    "model_directories": CampaignSize(300, 3),
    "thread_storm": CampaignSize(10_000, 10),
}
"""The modules of all campaigns."""

TIME_LIMIT_SECONDS = 3600.0
"""Time after which a campaign that has not ended is stopped, and counts as one that hangs."""

MEMORY_BYTES = 24 << 30
"""Address space of a campaign and of each process that it starts."""


def run_campaign(name: str, cases: int, seed: int) -> FaultCounts:
    """Run a campaign in a process of its own; return its counts, or one fault if it does not come to its end."""
    receiver, sender = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_send_counts, args=(name, cases, seed, sender))
    process.start()
    sender.close()
    unfinished, outcome = FaultCounts(name), "hangs"
    if receiver.poll(TIME_LIMIT_SECONDS):
        outcome = "tracebacks"
        with suppress(EOFError):  # it ended without a word
            return FaultCounts(name, **receiver.recv())
    process.kill()
    unfinished.add_fault(outcome, "the campaign did not come to its end")
    return unfinished


def _send_counts(name: str, cases: int, seed: int, sender: Connection) -> None:
    import torch

    torch.set_num_threads(1)  # matrices are tiny
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    counts = import_module(name).run(cases, seed)
    sender.send({key: getattr(counts, key) for key in ("cases", *FAULTS, "details", "faults")})


def format_table(results: Sequence[FaultCounts]) -> str:
    """Return the counts of all campaigns as a table in Markdown."""
    columns = ("cases", *FAULTS)
    lines = ["| campaign | " + " | ".join(columns).replace("_", " ") + " |", "|---" * (1 + len(columns)) + "|"]
    lines += [
        f"| {each.name} | " + " | ".join(f"{getattr(each, name):,}" for name in columns) + " |" for each in results
    ]
    return "\n".join(lines).replace("_", " ")


def write_results(path: Path, results: Sequence[FaultCounts]) -> None:
    """Write the table, or, to a file .json, the counts with their details and the description of each fault."""
    keys = ("name", "cases", *FAULTS, "details", "faults")
    rows = [{key: getattr(each, key) for key in keys} for each in results]
    text = json.dumps(rows, indent=2) if path.suffix == ".json" else format_table(results)
    path.write_text(text + "\n", encoding="utf-8")


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=f"of {', '.join(CAMPAIGNS)}; default: all")
    parser.add_argument("--cases", type=int, help="number of cases of each, instead of those of the long form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="campaigns at a time (2)")
    parser.add_argument("--smoke", action="store_true", help="a few cases of each")
    parser.add_argument("--write", type=Path, metavar="PATH", help="also write the table (.md) or all counts (.json)")
    options = parser.parse_args(arguments)
    if unknown := set(options.campaigns) - set(CAMPAIGNS):
        parser.error(f"unknown campaigns: {', '.join(sorted(unknown))}; there are {', '.join(CAMPAIGNS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns; return the exit status."""
    options = parse_options(arguments)
    names = options.campaigns or list(CAMPAIGNS)
    cases = [options.cases or (CAMPAIGNS[name].smoke if options.smoke else CAMPAIGNS[name].cases) for name in names]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(partial(run_campaign, seed=options.seed), names, cases))
    print(format_table(results))
    if options.write:
        write_results(options.write, results)
    return int(any(each.faults for each in results))


if __name__ == "__main__":
    sys.exit(main())
