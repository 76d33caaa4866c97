"""Trained encoders: `Filler` finds masked words, `Classifier` labels texts, `Tagger` labels words; all give vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from regard.api.embedding_model import EmbeddingModel
from regard.api.model import TokenIds, check_text
from regard.data.batches import SegmentedRows
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.heads import Pooler
from regard.models.interfaces import EncoderModel
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.classify import Classification, ClassificationTask, TextPair
from regard.tasks.pretrain import MaskPrediction, PretrainingTask
from regard.tasks.shared.encoder_task import EncoderTask, inputs_to_rows
from regard.tasks.shared.input_length import check_fits
from regard.tasks.tag import TaggedWord, TaggingTask
from regard.text.special_tokens import EncodedInput
from regard.text.words import find_whitespace_words, find_words


class TextEncoder(EmbeddingModel):
    """A trained encoder."""

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, EncoderTask)
        assert isinstance(network, EncoderModel)
        self.encoder_task, self.network = task, network

    @property
    def _network(self) -> nn.Module:
        return self.network

    @property
    def _max_text_tokens(self) -> int:
        return self.network.config.n_positions - self.encoder_task.template.n_special_tokens(is_pair=False)

    @property
    def _vocabulary_size(self) -> int:
        return len(self.encoder_task.tokenizer)

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        return [self.encoder_task.tokenizer.encode(text) for text in example]

    def look(self, text: str, pair: str | None = None, **options: Any) -> Inspection:
        """What the model does with a text, or with a pair of texts."""
        check_text(text)
        if options:
            raise InputError(f"an encoder searches nothing; leave out: {', '.join(options)}")
        encoded = self._encode_look_input(text, pair)
        check_fits(len(encoded.ids), self.network.config.n_positions, text="the text with its special tokens")
        facts = {"model": str(self.path), "text": text, **({"pair": pair} if pair else {})}
        subject, rows = self._build_hidden_state_target(encoded)
        return Inspection(self._add_prediction(subject, rows, text), {**facts, **self._describe_prediction(text, pair)})

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        """What the model says of the text, for a reader."""
        return {}

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        sides = self._encode_texts([text] if pair is None else [text, pair])
        return self.encoder_task.template.wrap(sides[0], sides[1] if pair is not None else None)

    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        return self._build_hidden_state_target(self.encoder_task.template.wrap(*sides[:2]))[0]

    def _build_hidden_state_target(self, encoded: EncodedInput) -> tuple[LookTarget, SegmentedRows]:
        """The input as the viewer takes it, of which vectors are made and no more, and its row."""
        tokenizer, network = self.encoder_task.tokenizer, self.network
        rows = inputs_to_rows([encoded], self.encoder_task.template.pad_id).to(self.device)
        side = Side(tokenizer.display_tokens(encoded.ids), tokenizer.words(encoded.ids), "embedding.out")
        nothing = rows.ids.new_zeros(0).long()
        return LookTarget(
            network, {"encoder": side}, run_layers=lambda: network(rows), head=None, predicted_ids=nothing
        ), rows

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """The subject with what this model predicts of the text; vectors alone predict nothing."""
        return target


class MaskedLanguageModel(TextEncoder):
    """A pre-trained encoder, which may know masked words."""

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, PretrainingTask)
        self.task = task

    def fill(self, text: str, k: int = 5) -> list[list[MaskPrediction]]:
        """The k likeliest words for each [MASK] of a text."""
        return self.task.fill(self.network, text, k, self.device)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        if pair is not None or "masked" not in self.network.heads or not self.task.has_mask(text):
            return {}
        return {"said": ", ".join(f"{words[0].word} ({words[0].probability:.0%})" for words in self.fill(text, 1))}

    def evaluate(self, data: Sequence[str], **others: Any) -> dict[str, Any]:
        """Accuracy and perplexity of masked words, and accuracy of next sentences, on plain text."""
        refuse_options(others, "plain text is evaluated as it is")
        return self.task.evaluate(self.network, data, self.device)

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        masked = pair is None and "masked" in self.network.heads and self.task.has_mask(text)
        return self.task.encode_masked(text) if masked else super()._encode_look_input(text, pair)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """Of each token its own probability; of a mask that of the likeliest word."""
        if "masked" not in self.network.heads:
            return target
        ids = rows.ids[0].long()
        with torch.inference_mode():
            likeliest = self.task.compute_logits(self.network, self.network(rows))[0].argmax(-1)
        predicted = torch.where(ids == self.task.mask_id, likeliest, ids)
        return replace(
            target, head=lambda hidden: self.task.compute_logits(self.network, hidden), predicted_ids=predicted
        )


class Classifier(TextEncoder):
    """An encoder that labels texts, or pairs of them."""

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, ClassificationTask)
        self.task = task

    def classify(self, text: str | Sequence[str | TextPair], pair: str | None = None) -> Any:
        """The label of a text (or of a text and its pair) with probabilities; of several, a list."""
        if isinstance(text, str):
            return self.task.classify(self.network, [(_check_not_empty(text), pair or "")], self.device)[0]
        return list(self.classify_iterable(text))

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        self.task.check_paired(text, pair or "")
        return super()._encode_look_input(text, pair)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        verdict = self.classify(text, pair)
        score = verdict.score is not None
        return {"said": f"{verdict.score:.3f}" if score else f"{verdict.label} ({verdict.probability:.0%})"}

    def classify_iterable(self, texts: Iterable[str | TextPair]) -> Iterator[Classification]:
        """Label texts, or pairs, as they come."""
        for buffer in buffered_read(texts):
            pairs = [(each, "") if isinstance(each, str) else each for each in buffer]
            yield from self.task.classify(self.network, pairs, self.device)

    def evaluate(
        self, data: Sequence[str], *, columns: Sequence[str] = (), skip_empty: bool = False, **others: Any
    ) -> dict[str, Any]:
        """Return the metrics of the task on labelled texts, by default of the columns it was trained on."""
        refuse_options(others, "a classifier has no such options")
        return self.task.evaluate(self.network, data, columns or self.config.data.columns, skip_empty, self.device)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        task, network = self.task, self.network
        pooler = network.heads["pooler"]
        assert isinstance(pooler, Pooler)
        scored = task.config.kind == "score"

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 1 C"]:
            outputs = task.compute_logits(network, hidden, rows, 1)
            return task.labels.scale.unstandardise(outputs) if scored else outputs

        with torch.inference_mode():
            hidden = network(rows)
            outputs = head(hidden)[0, 0]
            own = (rows.segment == 1)[:, None]
            weights, hops = (
                pooler.pooling.token_weights(hidden, rows, own)[0],
                pooler.pooling.hop_weights(hidden, rows, own)[0, 0],
            )
        best = int(outputs.argmax())
        name = "score" if scored else task.labels.names[best]
        return replace(
            target,
            head=head,
            predicted_ids=torch.tensor([best], device=outputs.device),
            output_labels=(name,),
            output_token_weights=lambda: weights,
            hops=(lambda: hops) if pooler.pooling.kind == "attention" else None,
            is_regression=scored,
        )


class Tagger(TextEncoder):
    """An encoder that labels words."""

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, TaggingTask)
        self.task = task

    def tag(self, text: str | Sequence[str]) -> list[TaggedWord]:
        """The words of a text with their labels; a list is taken for its words."""
        if isinstance(text, str):
            return self.task.tag_texts(self.network, [text], self.device)[0]
        return self.task.tag_words(self.network, [text], self.device)[0]

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        """As it is tagged: word by word."""
        return [list(chain.from_iterable(self.task.tokenizer.encode_words(_split_words(text)))) for text in example]

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        if pair is not None:
            raise InputError("a tagger reads single texts; leave out: pair")
        return super()._encode_look_input(text, pair)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        return {"said": " ".join(f"{each.word}/{each.label}" for each in self.tag(text))}

    def tag_iterable(self, texts: Iterable[str], *, split: bool = False) -> Iterator[list[TaggedWord]]:
        """Tag texts as they come; with `split` words are what stands between spaces."""
        for buffer in buffered_read(texts):
            yield from self.task.tag_texts(
                self.network, buffer, self.device, find_whitespace_words if split else find_words
            )

    def evaluate(
        self, data: Sequence[str], *, columns: Sequence[str] = (), skip_empty: bool = False, **others: Any
    ) -> dict[str, Any]:
        """Accuracy and, of entities, strict F1, on labelled words, by default of the column it was trained on."""
        refuse_options(others, "a tagger has no such options")
        return self.task.evaluate(self.network, data, columns or self.config.data.columns, skip_empty, self.device)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """Of each word its likeliest label, which sits on its first piece."""
        words, n_tokens = _split_words(text), rows.ids.shape[1]
        ((_, placed),) = self.task.encode_windows([words], n_tokens)
        first = torch.tensor([place for _, place in placed.word_positions], device=self.device)

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 O C"]:
            scores: Tensor = self.network.heads["tags"](hidden[:, first])
            return scores

        with torch.inference_mode():
            predicted: Int[Tensor, " O"] = head(self.network(rows))[0].argmax(-1)
        labels = [self.task.labels.names[label] for label in predicted.tolist()]
        return replace(
            target,
            head=head,
            predicted_ids=predicted,
            output_labels=tuple(f"{word}/{label}" for word, label in zip(words, labels, strict=True)),
            output_side="tagged",
            output_token_weights=lambda: one_hot(first, n_tokens),
        )


def refuse_options(options: dict[str, Any], reason: str) -> None:
    if options:
        raise InputError(f"{reason}; leave out: {', '.join(options)}")


def _split_words(text: str) -> list[str]:
    """The words of plain text, as they are tagged."""
    return [text[start:end] for start, end in find_words(text)]


def _check_not_empty(text: str) -> str:
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text
