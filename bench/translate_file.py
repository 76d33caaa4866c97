"""Translate a file by whole commands: seconds and peak memory of regard beside CTranslate2 on the exported model.

    python bench/translate_file.py runs/en-fr news.en --beams 1 4
    python bench/translate_file.py --smoke                         a tiny model with random weights

Every round is a process of its own that loads the model, translates the file and writes the result, as a user runs it:
`regard translate --file` in float32 and int8, and a script of a few lines around CTranslate2 (one worker per core,
batches of --batch sentences, longest first) with what `regard export --to ctranslate2` wrote. Rounds are interleaved,
the median is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import harness
from model_loading import SHAPE, write_run
from model_loading import SMOKE as MODEL_SMOKE

from regard.export import export_model
from regard.progress import quiet_progress

CTRANSLATE2_SCRIPT = """
import json, os, sys
import ctranslate2, tokenizers
model, text, out, compute_type, beam, batch = sys.argv[1:]
ours = json.load(open(os.path.join(model, "config.json")))
tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
translator = ctranslate2.Translator(model, compute_type=compute_type, inter_threads=os.cpu_count(), intra_threads=1)
lines = open(text, encoding="utf-8").read().splitlines()
sources = [each.tokens for each in tokenizer.encode_batch(lines, add_special_tokens=False)]
end = [] if ours["add_source_eos"] else [ours["eos_token"]]
results = translator.translate_batch(
    [[*tokens, *end] for tokens in sources], beam_size=int(beam), max_batch_size=int(batch), max_decoding_length=178
)
ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in results]
open(out, "w", encoding="utf-8").write("".join(line + "\\n" for line in tokenizer.decode_batch(ids)))
"""


class Measurement(NamedTuple):
    """Seconds of a process by the clock, and its peak memory in bytes."""

    seconds: float
    n_bytes: int


def main(arguments: Sequence[str] | None = None) -> None:
    smoke = {"rounds": 1, "beams": [1], "lines": 3, **{key: MODEL_SMOKE[key] for key in ("vocabulary", "set")}}
    parser = harness.Parser(__doc__, smoke=smoke)
    parser.add_argument("model", nargs="?", type=Path, help="the run directory of a translator; random weights without")
    parser.add_argument("text", nargs="?", type=Path, help="a file with one sentence per line")
    parser.add_argument("--lines", type=int, default=2000, help="the first lines of the file")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=16000, help="of the model with random weights")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=N", help="its shape")
    options = parser.parse(arguments)
    if options.model is not None and options.text is None:
        parser.error("give a model and a file of sentences, or neither")
    with tempfile.TemporaryDirectory() as folder, quiet_progress():
        bench(options, Path(folder))


def bench(options: argparse.Namespace, folder: Path) -> None:
    """Print the table of all commands."""
    shape = SHAPE | {key: int(value) for key, value in (each.split("=") for each in options.set)}
    model = options.model or write_run(folder / "run", shape, options.vocabulary)
    lines = options.text.read_text(encoding="utf-8").splitlines() if options.text else ["a few short words"] * 100
    text = folder / "text"
    text.write_text("".join(f"{line}\n" for line in lines[: options.lines]), encoding="utf-8")
    n_lines = min(options.lines, len(lines))
    exported = export_model(model, folder / "ct2", "ctranslate2") if harness.is_installed("ctranslate2") else None
    print(f"{n_lines:,} lines{'':<26}{'seconds':>9}{'lines/s':>9}{'MB':>7}")
    for beam in options.beams:
        commands = build_commands(model, exported, text, folder / "out", beam, options.batch)
        rounds = [{name: run(command) for name, command in commands.items()} for _ in range(options.rounds)]
        for name in commands:
            seconds = statistics.median(each[name].seconds for each in rounds)
            megabytes = max(each[name].n_bytes for each in rounds) / 1e6
            print(f"beam {beam:<4}{name:<24}{seconds:>11.2f}{n_lines / seconds:>9.1f}{megabytes:>7.0f}", flush=True)


def build_commands(
    model: Path, exported: Path | None, text: Path, out: Path, beam: int, batch: int
) -> dict[str, list[str]]:
    """Return the command of each contender by name."""
    regard = [sys.executable, "-m", "regard", "translate", str(model), "--file", str(text), "--device", "cpu"]
    search = ["--beam", str(beam), "--batch", str(batch)]
    precisions = ("float32", "int8")
    commands = {f"regard {each}": [*regard, *search, "--precision", each] for each in precisions}
    if exported is not None:
        peer = [sys.executable, "-c", CTRANSLATE2_SCRIPT, str(exported), str(text), str(out)]
        commands |= {f"CTranslate2 {each}": [*peer, each, str(beam), str(batch)] for each in precisions}
    return commands


def run(command: list[str]) -> Measurement:
    """Run a command, and measure it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stderr is not None
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ... failed: {message.strip()[-300:]}")
    return Measurement(time.perf_counter() - start, usage.ru_maxrss * 1024)


if __name__ == "__main__":
    harness.run_script(main)
