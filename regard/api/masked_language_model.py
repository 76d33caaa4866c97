"""A pre-trained encoder: predicts masked words and next sentences, and gives vectors as every encoder does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import one_hot

from regard.api.inputs import check_is_str, check_texts, split_data
from regard.api.text_encoder import TextEncoder
from regard.data.batches import SegmentedRows
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.compute.look_target import LookTarget
from regard.predict.classification import TextPair
from regard.predict.mask_filling import MaskFiller, MaskPrediction, compute_masked_lm_logits
from regard.predict.next_sentence import (
    NEXT_LABELS,
    NO_NEXT_HEAD_MESSAGE,
    NextSentencePrediction,
    NextSentencePredictor,
    compute_next_sentence_logits,
)
from regard.progress import warn
from regard.ranges import COUNT_RANGE, check_option
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.pretrain import PretrainingTask
from regard.text.special_tokens import EncodedInput


class MaskedLanguageModel(TextEncoder):
    """A pre-trained encoder, which predicts masked words and next sentences if it kept the heads for them.

    Example:
        >>> model = regard.MaskedLanguageModel.load("runs/bert")
        >>> model.fill("the [MASK] exceeded the speed limit")[0][0].word
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, PretrainingTask)
        self.task = task
        self.predictor: MaskFiller = task.make_predictor(self.network, device)
        self.next_sentence_predictor: NextSentencePredictor = task.make_next_sentence_predictor(self.network, device)

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
            `probability` and `text` (the text with that mask filled). Each mask is predicted separately. For a list of
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
        check_option("k", k, COUNT_RANGE)
        return (self.predictor.fill(text, k) if text.strip() else [] for text in texts)

    @overload
    def next_sentence(self, text: str, pair: str) -> NextSentencePrediction: ...

    @overload
    def next_sentence(self, text: Sequence[TextPair]) -> list[NextSentencePrediction]: ...

    def next_sentence(
        self, text: str | Sequence[TextPair], pair: str | None = None
    ) -> NextSentencePrediction | list[NextSentencePrediction]:
        """Predict whether one text follows another, or for each pair of a list.

        Of a pair longer than the model, the end of the first text and the beginning of the second are read; a warning
        counts such pairs.

        Args:
            text: The first text; or a list of (text, pair) tuples. A pair of empty texts has a probability of NaN.
            pair: The text that may follow it.

        Returns:
            A `NextSentencePrediction`: `probability`, `is_next` (the probability is at least 0.5) and
            `n_tokens_left_out`. For a list, a list of them, in the same order.

        Example:
            >>> model.next_sentence("She opened the door.", "It was raining outside.").probability
        """
        if not isinstance(text, str):
            if pair is not None:
                raise InputError("a pair goes with one text; give a list of (text, pair) tuples")
            return list(self.next_sentence_iterable(text))
        if pair is None:
            raise InputError("only one text; give the one that may follow it too")
        return next(iter(self.next_sentence_iterable([(text, pair)])))

    def next_sentence_iterable(self, pairs: Iterable[TextPair]) -> Iterator[NextSentencePrediction]:
        """Predict next sentences for pairs from an iterable of any length, also an endless one.

        Pairs are read 1,024 at a time; nothing more is held in memory.

        Args:
            pairs: (text, pair) tuples.

        Yields:
            The prediction for each pair, as `next_sentence` returns it.
        """
        if "next" not in self.network.heads:
            raise InputError(NO_NEXT_HEAD_MESSAGE)
        for batch in buffered_read(_check_pair(*pair, number) for number, pair in enumerate(pairs)):
            filled = [pair for pair in batch if pair[0].strip()]
            predictions = self.next_sentence_predictor.predict(filled) if filled else []
            if n_shortened := sum(each.n_tokens_left_out > 0 for each in predictions):
                limit = f"{self.network.config.n_positions:,} tokens"
                warn(f"{n_shortened:,} of {len(batch):,} pairs are longer than {limit}; read where the two texts meet")
            results = iter(predictions)
            yield from (next(results) if pair[0].strip() else NextSentencePrediction(math.nan) for pair in batch)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        if pair is not None and "next" in self.network.heads:
            prediction = self.next_sentence(text, pair)
            if prediction.is_next:
                return {"prediction": f"{NEXT_LABELS[0]} ({prediction.probability:.0%})"}
            return {"prediction": f"{NEXT_LABELS[1]} ({1 - prediction.probability:.0%})"}
        if pair is not None or not self.predictor.has_mask(text):
            return {}
        return {
            "prediction": ", ".join(f"{words[0].word} ({words[0].probability:.0%})" for words in self.fill(text, 1))
        }

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
        """Predict the second text of a pair as next or not; else every token, and at a mask the most likely word."""
        if "next" in self.network.heads and bool(rows.token_type_ids.any()):
            return self._add_next_sentence_prediction(target, rows)
        if "masked" not in self.network.heads:
            return target
        ids = rows.ids[0].long()
        with torch.inference_mode():
            most_likely = compute_masked_lm_logits(self.network, self.network(rows))[0].argmax(-1)
        predicted = torch.where(ids == self.predictor.mask_id, most_likely, ids)
        return replace(
            target, head=lambda hidden: compute_masked_lm_logits(self.network, hidden), predicted_ids=predicted
        )

    def _add_next_sentence_prediction(self, target: LookTarget, rows: SegmentedRows) -> LookTarget:
        network = self.network

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 1 2"]:
            return compute_next_sentence_logits(network, hidden, rows, 1)

        with torch.inference_mode():
            predicted = head(network(rows))[0].argmax(-1)
        first_token = one_hot(torch.tensor([0], device=self.device), rows.ids.shape[1])
        return replace(
            target,
            head=head,
            predicted_ids=predicted.clone(),
            output_labels=(NEXT_LABELS[int(predicted)],),
            output_token_weights=lambda: first_token,
        )


def _check_pair(text: object, pair: object, number: int) -> TextPair:
    """Return two texts; refuse what is no text, and a pair of which only one is empty."""
    sides = check_is_str(text, number), check_is_str(pair, number)
    if bool(sides[0].strip()) != bool(sides[1].strip()):
        raise InputError(f"pair {number:,}, counted from 0: one of its texts is empty; give both")
    return sides
