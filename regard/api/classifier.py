"""An encoder that classifies texts: label and probabilities, or a score, for each text or pair of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.api.inputs import check_is_str, split_columns, split_data
from regard.api.text_encoder import TextEncoder
from regard.data.batches import SegmentedRows
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.compute.look_target import LookTarget, SentenceAttention
from regard.models.heads import LEARNED_POOLINGS, Pooler, Pooling
from regard.predict.classification import Classification, ClassificationPredictor, TextPair, compute_text_logits
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.classify import ClassificationTask
from regard.text.special_tokens import EncodedInput


class Classifier(TextEncoder):
    """An encoder that classifies or scores texts, or pairs of texts.

    Example:
        >>> model = regard.Classifier.load("runs/reviews")
        >>> model.classify("this movie was a great experience").label
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, ClassificationTask)
        self.task = task
        self.predictor: ClassificationPredictor = task.make_predictor(self.network, device)

    def _describe(self) -> list[str]:
        return ["scores"] if self.task.config.kind == "score" else [f"{len(self.task.labels)} classes"]

    @overload
    def classify(self, text: str, pair: str | None = None) -> Classification: ...  # type: ignore[overload-overlap]

    @overload
    def classify(self, text: Sequence[str | TextPair]) -> list[Classification]: ...

    def classify(
        self, text: str | Sequence[str | TextPair], pair: str | None = None
    ) -> Classification | list[Classification]:
        """Classify a text or a pair of texts, or each of a list.

        Args:
            text: A text; or a list of texts, or of (text, pair) tuples. An empty text has an empty classification:
                no label, and NaN for its probability or score.
            pair: The second text, for a model that was trained on pairs.

        Returns:
            For one text a `Classification`: `label`, `probability` and `probabilities` (of every class), or `score`
            where the model predicts a number. For a list, a list of them, in the same order.

        Example:
            >>> model.classify("this movie was a great experience").label
            >>> model.classify([("a man sleeps", "somebody is asleep")])[0].probabilities
        """
        if isinstance(text, str):
            return next(self.classify_iterable([(text, pair or "")]))
        if pair is not None:
            raise InputError("a pair goes with one text; give a list of (text, pair) tuples")
        return list(self.classify_iterable(text))

    def classify_iterable(self, texts: Iterable[str | TextPair]) -> Iterator[Classification]:
        """Classify texts from an iterable of any length, also an endless one.

        Texts are read 1,024 at a time; nothing more is held in memory.

        Args:
            texts: Texts, or (text, pair) tuples.

        Yields:
            The classification of each text, as `classify` returns it.
        """
        for pairs in buffered_read(_as_pair(text, number) for number, text in enumerate(texts)):
            filled = [each for each in pairs if any(side.strip() for side in each)]
            results = iter(self.predictor.classify(filled) if filled else [])
            for each in pairs:
                yield next(results) if any(side.strip() for side in each) else self._empty_classification()

    def _empty_classification(self) -> Classification:
        return Classification("", math.nan, {}, math.nan if self.task.config.kind == "score" else None)

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        self.predictor.check_paired(text, pair or "")
        return super()._encode_look_input(text, pair)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        prediction = self.classify(text, pair)
        if prediction.score is not None:
            return {"prediction": f"{prediction.score:.3f}"}
        return {"prediction": f"{prediction.label} ({prediction.probability:.0%})"}

    def evaluate(
        self, data: str | Sequence[str], *, columns: str | Sequence[str] = (), skip_empty: bool = False
    ) -> dict[str, Any]:
        """Score the model on labelled texts.

        Args:
            data: A table, or several: .tsv, .csv, .jsonl, .parquet, also compressed.
            columns: The columns text,label or text,pair,label, by header or number, as "2,1" or ("2", "1"); by default
                those the model was trained on.
            skip_empty: Leave out rows with an empty text, and count them, instead of refusing the file.

        Returns:
            A dict with task, n, accuracy, macro_f1, matthews and, for two classes, f1; for a model that predicts a
            number, pearson, spearman and mse.
        """
        names = split_columns(columns) or self.config.data.columns
        return self.task.evaluate(self.network, split_data(data), names, skip_empty, self.device)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        task, network = self.task, self.network
        pooler = network.heads["pooler"]
        assert isinstance(pooler, Pooler)
        is_regression = task.config.kind == "score"

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 1 C"]:
            outputs = compute_text_logits(network, hidden, rows, 1)
            return task.labels.scale.unstandardise(outputs) if is_regression else outputs

        with torch.inference_mode():
            hidden = network.features(rows)
            outputs = head(hidden)[0, 0]
            text_mask = (rows.segment == 1)[:, None]
            weights = pooler.pooling.token_weights(hidden, rows, text_mask)[0]
            hops = pooler.pooling.hop_weights(hidden, rows, text_mask)[0, 0]
            levels = _sentence_attention(pooler.pooling, hidden, rows)
        best = int(outputs.argmax())
        name = "score" if is_regression else task.labels.names[best]
        return replace(
            target,
            head=head,
            predicted_ids=torch.tensor([best], device=outputs.device),
            output_labels=(name,),
            output_token_weights=lambda: weights,
            hops=(lambda: hops) if pooler.pooling.kind in LEARNED_POOLINGS else None,
            levels=None if levels is None else lambda: levels,
            is_regression=is_regression,
        )


def _sentence_attention(pooling: Pooling, hidden: Tensor, rows: SegmentedRows) -> SentenceAttention | None:
    """Return the two levels of hierarchical pooling of one text; None where pooling has one level."""
    if (levels := pooling.level_weights(hidden, rows)) is None:
        return None
    layout, weights = levels
    return SentenceAttention(weights.sentences[0, 0], weights.words[0], layout.tokens[0].int().argmax(0))


def _as_pair(text: str | TextPair, number: int) -> TextPair:
    """Return a pair as it is, and a text with the empty text as its pair."""
    first, second = text if isinstance(text, tuple | list) else (text, "")
    return check_is_str(first, number), check_is_str(second, number)
