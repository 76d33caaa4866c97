"""An encoder that labels words: parts of speech, entities, or any other label per word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from regard.api.inputs import check_texts, split_columns, split_data
from regard.api.model import TokenIds
from regard.api.text_encoder import TextEncoder
from regard.data.batches import SegmentedRows
from regard.data.buckets import buffered_read
from regard.errors import InputError
from regard.look.compute.look_target import LookTarget
from regard.predict.tagging import TaggedWord, TaggingPredictor, encode_word_windows
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.tag import TaggingTask
from regard.text.conllu import LABEL_COLUMNS, UNIVERSAL_PARTS_OF_SPEECH, format_conllu
from regard.text.special_tokens import EncodedInput
from regard.text.tagged import DEFAULT_COLUMN, is_conllu
from regard.text.words import split_at_whitespace


class Tagger(TextEncoder):
    """An encoder that labels words.

    Example:
        >>> model = regard.Tagger.load("runs/pos")
        >>> model.tag("The plane lands in Tokyo.")[0].label
    """

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, TaggingTask)
        self.task = task
        self.predictor: TaggingPredictor = task.make_predictor(self.network, device)

    def _describe(self) -> list[str]:
        return ["scores"] if self.task.is_regression else [f"{len(self.task.labels)} labels"]

    @overload
    def tag(self, text: str, *, split: bool = False) -> list[TaggedWord]: ...  # type: ignore[overload-overlap]

    @overload
    def tag(self, text: Sequence[str], *, split: bool = False) -> list[list[TaggedWord]]: ...

    def tag(self, text: str | Sequence[str], *, split: bool = False) -> list[TaggedWord] | list[list[TaggedWord]]:
        """Label the words of a text, or of each text of a list.

        Args:
            text: A text, or a list of texts. An empty text has no words.
            split: Split words at white space only; by default text is segmented as in the training data, or, if that
                had no running text to learn from, at white space and punctuation.

        Returns:
            For one text a list of `TaggedWord`: `word`, `label`, `probability`, `start` and `end` (its characters in
            the text), `token_start` and `token_end` (those of the token that contains it, such as "don't" for "n't"),
            and `score` where the model predicts numbers. For a list of texts, a list of such lists, in the same order.

        Example:
            >>> [(each.word, each.label) for each in model.tag("The plane lands in Tokyo.")]
        """
        tagged = list(self.tag_iterable([text] if isinstance(text, str) else text, split=split))
        return tagged[0] if isinstance(text, str) else tagged

    def tag_words(self, words: Sequence[str]) -> list[TaggedWord]:
        """Label given words.

        Args:
            words: The words of one sentence.

        Returns:
            The words as `tag` returns them; `start` and `end` are those of the words joined by single spaces.
        """
        return self.predictor.tag_words([list(check_texts(words))])[0]

    def tag_iterable(self, texts: Iterable[str], *, split: bool = False) -> Iterator[list[TaggedWord]]:
        """Label the words of texts from an iterable of any length, also an endless one.

        Texts are read 1,024 at a time; nothing more is held in memory.

        Args:
            texts: Texts.
            split: Split words at white space only, as in `tag`.

        Yields:
            The labelled words of each text, as `tag` returns them.
        """
        splitter = split_at_whitespace if split else None
        for batch in buffered_read(check_texts(texts)):
            yield from self.predictor.tag_texts(batch, splitter)

    def format_conllu(self, text: str, words: Sequence[TaggedWord]) -> str:
        """Return the words of a text, as `tag` labelled them, as a sentence of CoNLL-U.

        Labels are in the column that the model was trained on, or upos if they are universal parts of speech; labels of
        other kinds, and scores, are under misc, as in Label=B-LOC and Score=0.5.

        Args:
            text: The text; its white space becomes single spaces.
            words: Its words.

        Returns:
            The lines of the sentence and an empty one; nothing for a text without words.

        Example:
            >>> print(model.format_conllu("I don't.", model.tag("I don't.")), end="")
        """
        labels = [f"{word.score:.4f}" if word.score is not None else word.label for word in words]
        return format_conllu(text, [word.text_word for word in words], labels, self._conllu_column)

    @cached_property
    def _conllu_column(self) -> str:
        """The column of CoNLL-U that labels belong to; a name that is none of them for misc."""
        data, names = self.config.data, self.task.labels.names
        column = data.columns[0] if data.columns else ""
        if self.task.is_regression:
            return "Score"
        if column in LABEL_COLUMNS or (not column and any(map(is_conllu, data.train))):
            return column or DEFAULT_COLUMN
        return "upos" if names and UNIVERSAL_PARTS_OF_SPEECH.issuperset(names) else "Label"

    def _split_words(self, text: str) -> list[str]:
        """Return the words of plain text as they are tagged."""
        return [word.form for word in self.task.splitter(text)]

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        """Return the ids of each text, encoded word by word as for tagging."""
        return [
            list(chain.from_iterable(self.task.tokenizer.encode_words(self._split_words(text)))) for text in example
        ]

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        if pair is not None:
            raise InputError("a tagger reads single texts; leave out: pair")
        return super()._encode_look_input(text, pair)

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        return {"prediction": " ".join(f"{each.word}/{_format_label(each)}" for each in self.tag(text))}

    def evaluate(
        self, data: str | Sequence[str], *, columns: str | Sequence[str] = (), skip_empty: bool = False
    ) -> dict[str, Any]:
        """Score the model on labelled words.

        Args:
            data: A file, or several: CoNLL, CoNLL-U or JSONL, also compressed.
            columns: The column of the labels, by name or number; by default the one the model was trained on.
            skip_empty: Leave out sentences without words, and count them, instead of refusing the file.

        Returns:
            A dict with task, n (sentences), words, accuracy and, for entities, strict precision, recall and F1, also
            of each type of entity; for a model that predicts numbers, pearson, spearman and mse. These are scores on
            given words. Where the data has running text (CoNLL-U), also scores on that: raw_sentences (with text),
            raw_words_precision, raw_words_recall and raw_words_f1 of the words that the model finds in it, and
            raw_tags_f1 of these words with their labels, as in the CoNLL 2018 shared task; raw_entity_f1 for entities.
        """
        names = split_columns(columns) or self.config.data.columns
        return self.task.evaluate(self.network, split_data(data), names, skip_empty, self.device)

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """Predict the most likely label, or the score, of each word at its first subword."""
        words, n_tokens = self._split_words(text), rows.ids.shape[1]
        ((_, encoded),) = encode_word_windows(self.task.tokenizer, self.task.template, [words], n_tokens)
        first = torch.tensor([position for _, position in encoded.word_positions], device=self.device)

        def head(hidden: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 O C"]:
            logits: Tensor = self.network.heads["tags"](hidden[:, first])
            return self.task.labels.scale.unstandardise(logits) if self.task.is_regression else logits

        with torch.inference_mode():
            outputs = head(self.network.features(rows))[0]
            predicted: Int[Tensor, " O"] = outputs.argmax(-1)
        if self.task.is_regression:
            labels = [f"{score:.3g}" for score in outputs[:, 0].tolist()]
        else:
            labels = [self.task.labels.names[label] for label in predicted.tolist()]
        return replace(
            target,
            head=head,
            predicted_ids=predicted,
            output_labels=tuple(f"{word}/{label}" for word, label in zip(words, labels, strict=True)),
            output_side="tagged",
            output_token_weights=lambda: one_hot(first, n_tokens),
            is_regression=self.task.is_regression,
        )


def _format_label(word: TaggedWord) -> str:
    return word.label if word.score is None else f"{word.score:.3g}"
