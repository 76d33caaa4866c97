"""Next-sentence prediction by a pre-trained encoder: the probability that one text follows another.

The input is ``[CLS] A [SEP] B [SEP]``, and the head reads the pooled [CLS] (Devlin et al. 2019, 3.1); its first logit
is for "B follows A". Of a pair longer than the model, the end of A and the beginning of B are read: they meet there.
The API calls `NextSentencePredictor`; tasks/pretrain.py trains the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import SegmentedRows
from regard.errors import InputError
from regard.models.interfaces import EncoderModel
from regard.predict.classification import TextPair
from regard.predict.encoder_inference import forward_batches
from regard.text.special_tokens import EncodedInput, SpecialTokenTemplate
from regard.text.tokenizer import Tokenizer

NEXT_LABELS = ("next", "not next")
"""Names of the two classes, in the order of the logits."""

NO_NEXT_HEAD_MESSAGE = (
    "this model has no head for next sentences; use one pre-trained with task.objective = masked+next, "
    "or an imported BertForPreTraining or BertForNextSentencePrediction"
)

Ids = list[int]


class NextSentencePrediction(NamedTuple):
    """The probability that a text follows another, and the number of their tokens that the model could not read."""

    probability: float
    n_tokens_left_out: int = 0

    @property
    def is_next(self) -> bool:
        """True if the text more likely follows than not."""
        return self.probability >= 0.5


class NextSentencePredictor:
    """An encoder with a next-sentence head and its vocabulary, on a device."""

    def __init__(self, model: EncoderModel, tokenizer: Tokenizer, device: torch.device) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self.template = SpecialTokenTemplate.from_tokenizer(tokenizer)

    def predict(self, pairs: Sequence[TextPair]) -> list[NextSentencePrediction]:
        """Return the prediction for each pair of texts."""
        encoded = self.tokenizer.encode_batch([text for pair in pairs for text in pair])
        shortened = [self._shorten(*sides) for sides in zip(encoded[::2], encoded[1::2], strict=True)]
        inputs = [self.template.wrap(first, second) for first, second, _ in shortened]
        probabilities = self._predict_inputs(inputs)
        return [
            NextSentencePrediction(probability, n_left_out)
            for probability, (_, _, n_left_out) in zip(probabilities, shortened, strict=True)
        ]

    def _shorten(self, first: Ids, second: Ids) -> tuple[Ids, Ids, int]:
        """Return the end of the first text and the beginning of the second; the shorter one gets at most half."""
        n_fitting = self.model.config.n_positions - self.template.n_special_tokens(is_pair=True)
        n_first = min(len(first), max(n_fitting // 2, n_fitting - len(second)))
        n_second = min(len(second), n_fitting - n_first)
        return first[len(first) - n_first :], second[:n_second], len(first) + len(second) - n_first - n_second

    def _predict_inputs(self, inputs: Sequence[EncodedInput]) -> list[float]:
        def readout(hidden: Float[Tensor, "B T D"], rows: SegmentedRows) -> Float[Tensor, "B 2"]:
            return compute_next_sentence_logits(self.model, hidden, rows, 1)[:, 0].float().softmax(-1)

        pad_id = self.template.pad_id
        outputs = dict(forward_batches(self.model, inputs, readout, pad_id=pad_id, device=self.device))
        return [float(outputs[number][0]) for number in range(len(inputs))]


def compute_next_sentence_logits(
    model: EncoderModel, hidden: Float[Tensor, "B T D"], rows: SegmentedRows, n_texts: int
) -> Float[Tensor, "B S 2"]:
    """Return the logits of "next" and "not next" for each pair of a row."""
    if "next" not in model.heads:
        raise InputError(NO_NEXT_HEAD_MESSAGE)
    logits: Tensor = model.heads["next"](model.heads["pooler"](hidden, rows, n_texts))
    return logits
