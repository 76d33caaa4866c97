"""The training step on an encoder, and on a language model, is one graph: it asks no tokenizer, and for no shape."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import tempfile
from pathlib import Path

import torch
from encoders import documents, sentences, small, vocabulary

from regard.data.corpus import write_store
from regard.data.order import PackedOrder
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.data.labels import Labels
from regard.tasks.pretrain import PretrainingTask, PretrainConfig
from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
from regard.tasks.tag import TaggingTask, TagConfig
from regard.text.documents import DocumentChunk
from language_models import LETTERS, small as small_writer, task as writer

torch._dynamo.config.error_on_recompile = True
words = vocabulary()
texts, labels = sentences(40), Labels(("a", "b", "c"))
labelled = [(text, texts[-1 - i] if i % 2 else "", "abc"[i % 3]) for i, text in enumerate(texts)]
scores = [(text, "", str(i / 7)) for i, text in enumerate(texts)]
tagged = [(text.replace(" ", "\\n"), "\\n".join("abc"[i % 3] for i, _ in enumerate(text.split()))) for text in texts]
plain = [(text,) for text in documents(30)]
asked = [(text, texts[-1 - i], f'[["{text.split()[1]}", {len(text.split()[0]) + 1}]]') for i, text in enumerate(texts)]
tasks = [
    (PretrainingTask(PretrainConfig(length=32), words), plain),
    (PretrainingTask(PretrainConfig(length=32, objective="masked"), words), plain),
    (ClassificationTask(ClassifyConfig(class_weights="a=2"), words, labels), labelled),
    (ClassificationTask(ClassifyConfig(pooling="attention"), words, labels), labelled),
    (ClassificationTask(ClassifyConfig(kind="score", pooling="mean"), words, Labels(())), scores),
    (TaggingTask(TagConfig(), words, labels), tagged),
    (QuestionAnsweringTask(QuestionAnsweringConfig(), words, labels), asked),
    (QuestionAnsweringTask(QuestionAnsweringConfig(pooling="attention"), words, labels), asked),
    (TaggingTask(TagConfig(layers="mix"), words, labels), tagged),
]
tasks.append((writer(LETTERS), [DocumentChunk(text) for text, in plain]))
for number, (task, examples) in enumerate(tasks):
    folder = Path(tempfile.mkdtemp())
    store = write_store(folder / "store", examples, task, fingerprint="")
    batches = PackedOrder(task.example_lengths(store), [64], 2, seed=0).iterate_epoch()
    layers = {"n_layers": 2 if getattr(task.config, "layers", "last") == "mix" else 1}  # each is traced anew
    model = small_writer(task, **layers) if task.name == "lm" else small(task, **layers)
    torch._dynamo.reset()
    compiled = torch.compile(task.compute_loss, backend="eager", fullgraph=True, dynamic=False)
    for placement, _ in zip(batches, range(2)):
        batch = task.make_batch(store, placement)
        torch.manual_seed(0)
        found = compiled(model, batch).total
        torch.manual_seed(0)
        torch.testing.assert_close(found, task.compute_loss(model, batch).total)
    print("compiled", number)
"""


def test_every_step_is_one_graph() -> None:
    """In a process of its own: where shapes are checked nothing can be compiled."""
    path = [folder for folder in sys.path if folder]
    environment = {**os.environ, "PYTHONPATH": ":".join(path), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert ended.stdout.splitlines() == [f"compiled {n}" for n in range(10)], ended.stderr[-2000:]
