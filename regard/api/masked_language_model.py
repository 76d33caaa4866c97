"""A pre-trained encoder: predicts masked words, and gives vectors as every encoder does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.inputs import check_texts, split_data
from regard.api.text_encoder import TextEncoder
from regard.data.batches import SegmentedRows
from regard.look.compute.look_target import LookTarget
from regard.predict.mask_filling import MaskFiller, MaskPrediction, compute_masked_lm_logits
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.pretrain import PretrainingTask
from regard.text.special_tokens import EncodedInput


class MaskedLanguageModel(TextEncoder):
    """A pre-trained encoder, which predicts masked words if it kept its masked-language-model head.

    Example:
        >>> model = regard.MaskedLanguageModel.load("runs/bert")
        >>> model.fill("the [MASK] exceeded the speed limit")[0][0].word
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, PretrainingTask)
        self.task = task
        self.predictor: MaskFiller = task.make_predictor(self.network, device)

    @overload
    def fill(self, text: str, k: int = 5) -> list[list[MaskPrediction]]: ...  # type: ignore[overload-overlap]

    @overload
    def fill(self, text: Sequence[str], k: int = 5) -> list[list[list[MaskPrediction]]]: ...

    def fill(
        self, text: str | Sequence[str], k: int = 5
    ) -> list[list[MaskPrediction]] | list[list[list[MaskPrediction]]]:
        """Predict the words that [MASK] stands for in a text, or in each text of a list.

        Args:
            text: A text with one [MASK] or more, or a list of such texts. An empty text has no masks.
            k: The number of words for each mask.

        Returns:
            For one text a list with an entry for each mask: its `k` most likely `MaskPrediction`, each with `word`,
            `probability` and `text` (the text with that mask filled). Each mask is predicted by itself. For a list of
            texts, a list of such lists, in the same order.

        Example:
            >>> model.fill("[MASK] is the capital of France", k=3)[0][0].word
        """
        texts = check_texts([text] if isinstance(text, str) else text)
        predictions = list(self._fill_texts(texts, k))
        return predictions[0] if isinstance(text, str) else predictions

    def fill_iterable(self, texts: Iterable[str], k: int = 5) -> Iterator[list[list[MaskPrediction]]]:
        """Predict masked words in texts from an iterable of any length, one text at a time.

        Args:
            texts: Texts with one [MASK] or more each.
            k: The number of words for each mask.

        Yields:
            The predictions for each text, as `fill` returns them.
        """
        return self._fill_texts(check_texts(texts), k)

    def _fill_texts(self, texts: Iterable[str], k: int) -> Iterator[list[list[MaskPrediction]]]:
        for text in texts:
            yield self.predictor.fill(text, k) if text.strip() else []

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        if pair is not None or not self.predictor.has_mask(text):
            return {}
        return {"said": ", ".join(f"{words[0].word} ({words[0].probability:.0%})" for words in self.fill(text, 1))}

    def evaluate(self, data: str | Sequence[str]) -> dict[str, Any]:
        """Score the model on plain text.

        Args:
            data: A file of plain text, or several, with blank lines between documents.

        Returns:
            A dict with accuracy and perplexity of masked words and, where the model has that head, the accuracy of
            next-sentence prediction, with counts.
        """
        return self.task.evaluate(self.network, split_data(data), self.device)

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        masked = pair is None and self.predictor.has_mask(text)
        return self.predictor.encode_masked(text) if masked else super()._encode_look_input(text, pair)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """Predict every token itself, and at a mask its most likely word."""
        if "masked" not in self.network.heads:
            return target
        ids = rows.ids[0].long()
        with torch.inference_mode():
            most_likely = compute_masked_lm_logits(self.network, self.network(rows))[0].argmax(-1)
        predicted = torch.where(ids == self.predictor.mask_id, most_likely, ids)
        return replace(
            target, head=lambda hidden: compute_masked_lm_logits(self.network, hidden), predicted_ids=predicted
        )
