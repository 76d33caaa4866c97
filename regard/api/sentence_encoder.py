"""An encoder trained to embed sentences: everything an encoder does, and the evaluation of its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.inputs import split_columns, split_data
from regard.api.text_encoder import TextEncoder
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.embed import EmbeddingTask


class SentenceEncoder(TextEncoder):
    """An encoder whose vectors of texts were trained by contrast.

    Example:
        >>> model = regard.SentenceEncoder.load("runs/sentences")
        >>> model.match("a man is asleep", "somebody sleeps")
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, EmbeddingTask)
        self.task = task

    def _describe(self) -> list[str]:
        return [f"{self.task.pooling} pooling"]

    def evaluate(
        self, data: str | Sequence[str], *, columns: str | Sequence[str] = (), skip_empty: bool = False
    ) -> dict[str, Any]:
        """Score the vectors on scored pairs, or by retrieval on pairs.

        Args:
            data: A table, or several: .tsv, .csv, .jsonl, .parquet, also compressed; with two texts and a score, two
                texts, or two texts and a hard negative.
            columns: The columns, by header or number, as "1,2,3" or ("1", "2", "3"); by default recognised by their
                names.
            skip_empty: Leave out rows with an empty text, and count them, instead of refusing the file.

        Returns:
            A dict with task, n and, for scored pairs, spearman and pearson; for others mrr, accuracy_at_1,
            accuracy_at_5 and accuracy_at_10 of finding the second text of each pair among all second texts and hard
            negatives.
        """
        names = split_columns(columns)
        return self.task.evaluate(self.network, split_data(data), names, skip_empty, self.device)
