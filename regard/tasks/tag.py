"""Sequence tagging: a label, or a score, for every word of a sentence (named entities, parts of speech, reading times).

The label of a word is that of its first subword; the others are read, and predict nothing. Labels of the form B-, I-, O
are read as entities: IOB1 becomes IOB2, and the metric is the F1 of whole entities. With ``kind = "score"`` labels are
numbers, and the model predicts them standardised; a word whose label is ``_`` has none. A sentence longer than the
model is split into overlapping windows. predict/tagging.py tags with a trained model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import EncoderBatch, build_label_rows
from regard.data.columns import ColumnSpec, LabelColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader, RereadableTexts
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.metrics import accuracy, entity_scores, regression_metrics
from regard.models.config import EncoderModelConfig
from regard.models.heads import TokenClassificationHead
from regard.models.interfaces import EncoderModel
from regard.models.layer_combination import LayerChoice
from regard.nn import IGNORE, Loss, cross_entropy, squared_error
from regard.predict.raw_text_scores import score_raw_text
from regard.predict.tagging import TaggingPredictor, TaggingWindow, encode_word_windows
from regard.ranges import check_table
from regard.tasks.shared.encoder_task import (
    INPUT_LENGTHS,
    LabelledTask,
    input_entries,
    read_stored_inputs,
)
from regard.tasks.shared.label_collection import (
    describe_invalid_score,
    fold_scale_into,
    make_class_labels,
    make_score_labels,
)
from regard.tasks.task import ValidationMetric
from regard.text.running_text import RunningText
from regard.text.segmenter_training import train_segmenter
from regard.text.tagged import (
    LabelSequenceValidator,
    TaggedSentence,
    is_entity_scheme,
    read_tagged_sentences,
    tagged_paths,
    to_iob2,
)
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer
from regard.text.word_segmenter import WordSegmenter
from regard.text.words import WordSplitter, split_words


@dataclass(frozen=True, kw_only=True)
class TagConfig:
    """The recipe's ``[task]`` table; `layers` are those that are read (models/layer_combination.py)."""

    name: Literal["tag"] = "tag"
    kind: Literal["classes", "score"] = "classes"
    layers: LayerChoice = "last"
    length: Annotated[int, INPUT_LENGTHS] = 512

    def __post_init__(self) -> None:
        check_table(self, "task")


class TaggedReader(ExampleReader):
    """Reader of sentences with a label for each word."""

    unit = "sentences (one word and its label a line, an empty line after each sentence)"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return tagged_paths(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return _read_examples(data, columns, skip_empty, lambda _: None)


class TaggingTask(LabelledTask):
    """From labelled words to a tagger."""

    name = verb = "tag"
    starts_from_language_models = True
    Config = TagConfig

    def __init__(
        self, config: TagConfig, tokenizer: Tokenizer, labels: Labels, segmenter: WordSegmenter | None = None
    ) -> None:
        super().__init__(config, tokenizer, labels)
        self.segmenter = segmenter
        self.is_regression = config.kind == "score"
        self.has_entities = not self.is_regression and is_entity_scheme(labels.names)

    @property
    def validation_metric(self) -> ValidationMetric:  # type: ignore[override]
        if self.is_regression:
            return ValidationMetric("spearman", "Spearman correlation", higher_is_better=True)
        return ValidationMetric("f1", "entity F1", higher_is_better=True) if self.has_entities else ACCURACY_METRIC

    @classmethod
    def make_reader(cls, config: TagConfig, data: DataConfig) -> TaggedReader:
        return TaggedReader()

    @classmethod
    def from_corpus(
        cls,
        config: TagConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> TaggingTask:
        labels = _collect_labels(corpus, is_regression=config.kind == "score")
        texts = RereadableTexts(lambda: (text.replace("\n", " ") for text in corpus.train_texts(0)))
        tokenizer = pretrained_tokenizer or train_tokenizer(texts, tokenizer_config, cls.special_token_names)
        return cls(config, tokenizer, labels, train_segmenter(lambda: _training_texts(corpus)))

    @classmethod
    def load(cls, config: TagConfig, tokenizer_config: TokenizerConfig, directory: Path) -> TaggingTask:
        task = super().load(config, tokenizer_config, directory)
        assert isinstance(task, TaggingTask)
        task.segmenter = WordSegmenter.load_if_exists(directory)
        return task

    def save(self, directory: Path) -> None:
        super().save(directory)
        if self.segmenter is not None:
            self.segmenter.save(directory)

    @property
    def splitter(self) -> WordSplitter:
        """The function that finds words in running text: as learned from the training data, or `split_words`."""
        return self.segmenter or split_words

    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        combination, width = self.build_layer_combination(config)
        n_outputs = 1 if self.is_regression else len(self.labels)
        return {**combination, "tags": TokenClassificationHead(config, n_outputs, width)}

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        return *self.input_columns, LabelColumnSpec("label", "float32" if self.is_regression else "int32")

    def encode(self, examples: Sequence[Example]) -> list[list[Any]]:
        """Return every window of every sentence, with the label of each word at its first token, else `IGNORE`.

        Scores are NaN where there is none.
        """
        parse_label = parse_score if self.is_regression else self.labels.index
        inputs, labels = [], []
        sentences = [words.split("\n") for words, _ in examples]
        for number, window in encode_word_windows(self.tokenizer, self.template, sentences, self.max_length):
            word_labels = examples[number][1].split("\n")
            token_labels = [self._no_label] * len(window.encoded.ids)
            for word, position in window.word_positions:
                token_labels[position] = parse_label(word_labels[word])
            inputs.append(window.encoded)
            labels.append(token_labels)
        return [*input_entries(inputs), labels]

    @property
    def _no_label(self) -> int | float:
        """The value that is stored for a token without a label."""
        return math.nan if self.is_regression else IGNORE

    def make_batch(self, store: TokenStore, placement: Placement) -> EncoderBatch:
        values = build_label_rows(store["label"], placement, placement.widths[0], self._no_label)
        if self.is_regression:
            labels = torch.from_numpy(self.labels.scale.standardise(values.numpy()))
            is_labelled = ~labels.isnan()
        else:
            labels = values.long()
            is_labelled = labels != IGNORE
        rows = self.pack_rows(store, placement)
        return EncoderBatch(rows, labels, max(1, int(is_labelled.sum())), int((rows.segment > 0).sum()))

    def compute_loss(self, model: EncoderModel, batch: EncoderBatch) -> Loss:
        """Return the cross-entropy of labels, or the squared error of standardised scores."""
        outputs = model.heads["tags"](model.features(batch.rows))
        return (
            squared_error(outputs[..., 0], batch.labels) if self.is_regression else cross_entropy(outputs, batch.labels)
        )

    def compute_validation_metrics(
        self, model: EncoderModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        inputs, gold = [], []
        for item, encoded in zip(items.tolist(), read_stored_inputs(store, items), strict=True):
            labels = store["label"][item]
            positions = np.flatnonzero(~np.isnan(labels) if self.is_regression else labels != IGNORE).tolist()
            inputs.append(TaggingWindow(encoded, list(enumerate(positions))))
            gold.append(labels[positions].tolist())
        predictor = self.make_predictor(model, device)
        outputs = predictor.predict_windows(inputs)
        if self.is_regression:
            return regression_metrics(list(chain(*gold)), torch.cat(outputs)[:, 0].double().numpy())
        names = [[self.labels.names[label] for label in each] for each in gold]
        return self.compute_metrics(names, [predictor.decode_labels(rows) for rows in outputs])

    def prepare_for_export(self, model: EncoderModel) -> None:
        """Fold the mean and deviation of the scores into the last layer."""
        head = model.heads["tags"]
        assert isinstance(head, TokenClassificationHead)
        fold_scale_into(head.out, self.labels.scale)

    def compute_metrics(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return the accuracy of words and, with entities, precision, recall and F1."""
        by_word = {"accuracy": accuracy(list(chain(*gold)), list(chain(*predicted)))}
        if not self.has_entities:
            return by_word
        entities = entity_scores(gold, predicted).micro
        return {"precision": entities.precision, "recall": entities.recall, "f1": entities.f1, **by_word}

    def make_predictor(self, model: EncoderModel, device: torch.device) -> TaggingPredictor:
        """Return the predictor that tags with a trained model."""
        return TaggingPredictor(
            model,
            self.tokenizer,
            self.labels,
            device,
            self.config.length,
            is_regression=self.is_regression,
            splitter=self.splitter,
        )

    @property
    def scoring_note(self) -> str:
        if self.segmenter is None:
            return "on given words; the training data has no running text to learn word segmentation from"
        learned = f"word segmentation learned from {self.segmenter.n_sentences:,} sentences"
        return f"on given words; at the end also on running text ({learned})"

    @property
    def has_final_metrics(self) -> bool:
        return self.segmenter is not None

    def compute_final_metrics(self, model: EncoderModel, corpus: Corpus, device: torch.device) -> dict[str, float]:
        """Return the scores on the running text of the validation sentences; nothing if it is not known."""
        return score_raw_text(self.make_predictor(model, device), list(_validation_sentences(corpus)))

    def evaluate(
        self, model: EncoderModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """Return the metrics of the task on labelled words, and the F1 of each entity type."""
        validate = _validate_scores if self.is_regression else _make_label_checker(self.labels)
        sentences = list(_read_sentences(data, columns, skip_empty, validate, with_text=True))
        gold, predictor = [each.labels for each in sentences], self.make_predictor(model, device)
        outputs = predictor.predict([each.words for each in sentences])
        scores = self._evaluate_scores if self.is_regression else self._evaluate_labels
        on_given_words = scores(gold, outputs, predictor)
        return {"task": self.name, "n": len(sentences), **on_given_words, **score_raw_text(predictor, sentences)}

    def _evaluate_scores(
        self, gold: Sequence[Sequence[str]], outputs: Sequence[Float[Tensor, "words 1"]], predictor: TaggingPredictor
    ) -> dict[str, Any]:
        scores = np.array([parse_score(label) for labels in gold for label in labels])
        has_score, predicted = ~np.isnan(scores), torch.cat(list(outputs))[:, 0].double().numpy()
        return {"words": int(has_score.sum()), **regression_metrics(scores[has_score], predicted[has_score])}

    def _evaluate_labels(
        self, gold: Sequence[Sequence[str]], outputs: Sequence[Float[Tensor, "words C"]], predictor: TaggingPredictor
    ) -> dict[str, Any]:
        predicted = [predictor.decode_labels(each) for each in outputs]
        types = entity_scores(gold, predicted).by_type if self.has_entities else {}
        by_type = {f"f1_{name}": score.f1 for name, score in types.items()}
        return {"words": sum(map(len, gold)), **self.compute_metrics(gold, predicted), **by_type}


NO_SCORE = "_"
"""The label of a word without a score, as CoNLL-U writes what is not annotated."""

ACCURACY_METRIC = ValidationMetric("accuracy", "accuracy", higher_is_better=True)


def _read_sentences(
    data: Sequence[str],
    columns: Sequence[str],
    skip_empty: bool,
    validate: LabelSequenceValidator = lambda _: None,
    *,
    with_text: bool = False,
) -> Iterator[TaggedSentence]:
    """Yield sentences with entities in IOB2."""
    if len(columns) > 1:
        raise ConfigError(f"columns: expected one, that of the labels, found {', '.join(columns)}")
    column = columns[0] if columns else ""
    for sentence in read_tagged_sentences(
        data, column, skip_empty=skip_empty, validate_labels=validate, with_text=with_text
    ):
        yield sentence._replace(labels=tuple(_normalise_scheme(sentence.labels)))


def _to_example(sentence: TaggedSentence) -> Example:
    """Return words and labels, one per line."""
    return "\n".join(sentence.words), "\n".join(sentence.labels)


def _read_examples(
    data: Sequence[str], columns: Sequence[str], skip_empty: bool, validate: LabelSequenceValidator
) -> Iterator[Example]:
    return map(_to_example, _read_sentences(data, columns, skip_empty, validate))


def _training_texts(corpus: Corpus) -> Iterator[RunningText]:
    """Yield the running text of the training sentences, where it is known; not of those that are held out."""
    data = corpus.data
    for sentence in _read_sentences(data.train, data.columns, data.skip_empty, with_text=True):
        if sentence.text is not None and not corpus.is_held_out(_to_example(sentence)):
            yield sentence.text


def _validation_sentences(corpus: Corpus) -> Iterator[TaggedSentence]:
    """Yield the sentences of the validation files, or those that are held out, with their running text."""
    data = corpus.data
    for sentence in _read_sentences(data.valid or data.train, data.columns, data.skip_empty, with_text=True):
        if data.valid or corpus.is_held_out(_to_example(sentence)):
            yield sentence


def _normalise_scheme(labels: Sequence[str]) -> Sequence[str]:
    return to_iob2(labels) if is_entity_scheme(labels) else labels


def _collect_labels(corpus: Corpus, *, is_regression: bool) -> Labels:
    """Return the labels of all training files, held-out sentences included; refuse others in validation files."""
    data, counted = corpus.data, Counter[str]()
    for _, each in _read_examples(
        data.train, data.columns, data.skip_empty, _validate_scores if is_regression else lambda _: None
    ):
        counted.update(each.split("\n"))
    labels = _make_word_scores(counted) if is_regression else make_class_labels(counted)
    if data.valid:
        validate = _validate_scores if is_regression else _make_label_checker(labels)
        for _ in _read_examples(data.valid, data.columns, data.skip_empty, validate):
            pass
    return labels


def _make_word_scores(counts: Counter[str]) -> Labels:
    counts.pop(NO_SCORE, None)
    if not counts:
        raise ConfigError(f"no word has a score, every label is {NO_SCORE}; is it the right column?")
    return make_score_labels(counts)


def parse_score(label: str) -> float:
    """Return the score of a word; NaN where it has none."""
    return math.nan if label == NO_SCORE else float(label)


def _validate_scores(labels: Sequence[str]) -> tuple[int, str] | None:
    """Describe the first label that is neither a score nor missing."""
    return _first_problem("" if label == NO_SCORE else describe_invalid_score(label) for label in labels)


def _make_label_checker(labels: Labels) -> LabelSequenceValidator:
    """Return a validator that describes labels absent from training."""

    def validate(word_labels: Sequence[str]) -> tuple[int, str] | None:
        return _first_problem(map(labels.describe_unknown, _normalise_scheme(word_labels)))

    return validate


def _first_problem(problems: Iterable[str]) -> tuple[int, str] | None:
    """Return the index and the description of the first label with a problem, if any has one."""
    described = ((index, f"{problem}, or name another --column") for index, problem in enumerate(problems) if problem)
    return next(described, None)
