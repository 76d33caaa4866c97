"""Load a model that is stored in 32, 16 and 8 bits: size on disk, seconds, memory, and the error of its weights.

python bench/model_loading.py                                  a translator of 6 + 2 layers x 384, vocabulary 16,000
python bench/model_loading.py --set n_layers=12 --threads 1
python bench/model_loading.py --smoke                          a tiny one

Weights are drawn at random. Each load is timed in a process of its own, after `import regard.api`, and its memory is
what the process took beyond that; "CPU s" counts all threads. Files come from the system's cache. The model is then
used for one short sentence.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness
import torch

from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.export import export_model
from regard.models.blocks import initialise_weights
from regard.models.config import TransformerSeq2SeqConfig, apply_preset
from regard.models.quantized_weights import relative_error
from regard.models.weights import collect_weights, read_tensors, write_tensors
from regard.progress import quiet_progress
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.translate import TranslateConfig, TranslationTask
from regard.text.tokenizer import TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SHAPE = {"preset": "medium-6+2", "d_model": 384, "n_heads": 6, "d_ff": 1536}
SMOKE = {
    "vocabulary": 400,
    "set": ["d_model=32", "n_heads=2", "d_ff=64", "n_layers=2", "n_decoder_layers=1"],
    "rounds": 1,
    "stored": ["int8"],
    "computed": ["float32"],
}

CHILD = """
import json, re, sys, time
import regard.api, regard.runs.model_loading, regard.api.loading
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
before = peak()
start, cpu_seconds = time.perf_counter(), time.process_time()
model = regard.load(sys.argv[1], device="cpu", precision=sys.argv[2])
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_seconds
megabytes = peak() - before
start = time.perf_counter()
model.translate("a short sentence", beam=1)
print(json.dumps([seconds, cpu_seconds, megabytes, time.perf_counter() - start]))
"""


def main() -> None:
    parser = harness.Parser(__doc__, smoke=SMOKE)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=N", help="change the shape of the model")
    parser.add_argument("--rounds", type=int, default=5, help="loads of each; the median is printed")
    parser.add_argument("--stored", nargs="*", default=["float32", "float16", "int8"])
    parser.add_argument("--computed", nargs="*", default=["float32", "int8"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse()
    shape = SHAPE | {key: int(value) for key, value in (each.split("=") for each in options.set)}
    with tempfile.TemporaryDirectory() as folder, quiet_progress():
        run = write_run(Path(folder, "run"), shape, options.vocabulary)
        weights = read_tensors(run / "model.safetensors")[0]
        print(f"{sum(each.numel() for each in weights.values()):,} weights, {options.threads} threads\n")
        print(
            f"{'stored':<9}{'MB':>7}{'error':>9}{'computed':>10}{'load s':>9}{'CPU s':>8}{'load MB':>9}{'first s':>9}"
        )
        for stored in options.stored:
            kind = "" if stored == "float32" else stored
            directory = export_model(run, Path(folder, stored), "regard", quantization=kind)
            error = relative_error(read_tensors(directory / "model.safetensors")[0], weights)
            size = sum(each.stat().st_size for each in directory.iterdir()) / 1e6
            for computed in options.computed:
                seconds, cpu_seconds, memory, first = measure(directory, computed, options.rounds, options.threads)
                times = f"{seconds:>9.2f}{cpu_seconds:>8.2f}{memory:>9.0f}{first:>9.2f}"
                print(f"{stored:<9}{size:>7.1f}{error:>9.2%}{computed:>10}{times}", flush=True)


def write_run(path: Path, shape: dict[str, Any], vocabulary: int) -> Path:
    """Write a translator with random weights as a run directory."""
    drawn = random.Random(0)
    words = ["".join(drawn.choices("aeiounrstl", k=drawn.randint(2, 12))) for _ in range(2 * vocabulary)]
    texts = [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)] * 2
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocabulary=vocabulary))
    task = TranslationTask(TranslateConfig(), TokenizerPair(tokenizer, tokenizer))
    config = TransformerSeq2SeqConfig(**apply_preset(shape, TransformerSeq2SeqConfig))
    model = task.build_model(config)
    initialise_weights(model, torch.Generator().manual_seed(1))
    path.mkdir()
    run = RunDirectory(path)
    task.save(path)
    write_tensors(run.weights_path, collect_weights(model))
    no_data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    ready = TokenizerConfig(kind="ready", vocabulary=len(tokenizer), joint=True)
    run.write_config(RunConfig(task.config, no_data, ready, config, PLACEHOLDER_TRAIN_CONFIG))
    return path


def measure(directory: Path, precision: str, n_rounds: int, n_threads: int) -> list[float]:
    """Return the medians of seconds, CPU seconds and megabytes to load, and of the seconds of a first sentence."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(directory), precision]
    runs = [
        json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(n_rounds)
    ]
    return [sorted(column)[len(column) // 2] for column in zip(*runs, strict=True)]


if __name__ == "__main__":
    harness.run_script(main)
