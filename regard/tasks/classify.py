"""Classification of texts and of pairs of texts, into classes, or regression of a score.

The pooled vector of a text ([CLS], mean, attention over its tokens, or over words and sentences) goes through one
linear layer, which gives a logit for each class, or one standardised score. A text longer than the model is split into
overlapping windows, each an example. predict/classification.py classifies with a trained model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import IN_TRAINING, AppliesIf, Table
from regard.data.batches import EncoderBatch, arrange_by_segment
from regard.data.columns import ColumnSpec, ScalarColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.errors import ConfigError, DataError
from regard.metrics import accuracy, f1, macro_f1, matthews, regression_metrics
from regard.models.config import EncoderModelConfig
from regard.models.heads import (
    LEARNED_POOLINGS,
    AttentionPoolingConfig,
    Pooler,
    PoolingQuery,
    PoolingScore,
    make_text_mask,
)
from regard.models.interfaces import EncoderModel
from regard.models.layer_combination import LayerChoice
from regard.nn import IGNORE, Linear, Loss, redundancy_penalty, squared_error
from regard.predict.classification import ClassificationPredictor, compute_text_logits, encode_text_windows
from regard.ranges import Range, check_table
from regard.tasks.shared.encoder_task import (
    INPUT_LENGTHS,
    LabelledTask,
    input_entries,
    max_texts_per_row,
    read_stored_inputs,
)
from regard.tasks.shared.label_collection import (
    collect_labels,
    compute_class_weights,
    describe_invalid_score,
    fold_scale_into,
)
from regard.tasks.task import ValidationMetric
from regard.text.labelled import LabelledExample, labelled_paths, read_labelled_examples
from regard.text.sentence_boundaries import find_closing_tokens
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

HIERARCHICAL = "hierarchical"
WITH_ATTENTION_POOLING = AppliesIf("task.pooling=attention")
WITH_LEARNED_POOLING = AppliesIf(*(f"task.pooling={pooling}" for pooling in LEARNED_POOLINGS))


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """The recipe's ``[task]`` table; `class_weights` is equal, balanced, or as in ``"yes=2,no=1"``.

    `layers` are the layers that are pooled: the last one, or a combination (models/layer_combination.py).
    With attention as `pooling`, several `hops` look at a text side by side, and `penalty` is what it costs where they
    look at the same tokens (Lin et al. 2017). `query` is trained or fixed to ones, `score` compares it with the keys
    ("additive" has the tanh layer of Yang et al. 2016 and Lin et al. 2017), and with `project` keys and values are
    linear projections of the hidden states. Hierarchical pooling attends to the words of each sentence, then to the
    sentences of a text (Yang et al. 2016).
    """

    name: Literal["classify"] = "classify"
    kind: Literal["classes", "score"] = "classes"
    layers: LayerChoice = "last"
    pooling: Literal["cls", "mean", "attention", "hierarchical", "max", "last", "concat"] = "cls"
    query: Annotated[PoolingQuery, WITH_LEARNED_POOLING] = "learned"
    score: Annotated[PoolingScore, WITH_LEARNED_POOLING] = "scaled"
    project: Annotated[bool, WITH_LEARNED_POOLING] = False
    hops: Annotated[int, Range(1, 1024), WITH_ATTENTION_POOLING] = 1
    penalty: Annotated[float, Range(0.0, 1e6, zero="off"), WITH_ATTENTION_POOLING] = 0.0
    length: Annotated[int, INPUT_LENGTHS] = 512
    class_weights: Annotated[str, AppliesIf("task.kind=classes"), IN_TRAINING] = "equal"

    def __post_init__(self) -> None:
        check_table(self, "task")
        if self.pooling != "attention" and (self.hops > 1 or self.penalty):
            raise ConfigError(f'task.hops and task.penalty go with task.pooling = "attention", not "{self.pooling}"')
        is_plain = (self.query, self.score, self.project) == ("learned", "scaled", False)
        if self.pooling not in LEARNED_POOLINGS and not is_plain:
            kinds = " or ".join(f'"{kind}"' for kind in LEARNED_POOLINGS)
            raise ConfigError(
                f'task.query, task.score and task.project go with task.pooling = {kinds}, not "{self.pooling}"'
            )

    @property
    def attention(self) -> AttentionPoolingConfig:
        """The attention of the pooling."""
        return AttentionPoolingConfig(n_hops=self.hops, query=self.query, score=self.score, project=self.project)


class LabelledReader(ExampleReader):
    """Reader of labelled texts and pairs of texts."""

    unit = "examples"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return labelled_paths(data)

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return read_labelled_examples(data, columns, skip_empty=skip_empty)


class ClassificationTask(LabelledTask):
    """From labelled texts to a classifier."""

    name = verb = "classify"
    starts_from_language_models = True
    Config = ClassifyConfig

    def __init__(self, config: ClassifyConfig, tokenizer: Tokenizer, labels: Labels) -> None:
        super().__init__(config, tokenizer, labels)
        # Embeddings are pooled hidden states of single layers: neither wider vectors nor attention to a combination.
        unusable = config.pooling == "concat" or (config.pooling == "attention" and config.layers != "last")
        self.pooling = "mean" if unusable else config.pooling
        # Sentences are told apart by the ids of their tokens.
        self.has_cacheable_features = config.pooling != HIERARCHICAL
        # Plain numbers, for they become part of what is compiled.
        self._class_weights: list[float] = compute_class_weights(config.class_weights, labels).tolist()

    @property
    def validation_metric(self) -> ValidationMetric:  # type: ignore[override]
        if self.config.kind == "score":
            return ValidationMetric("spearman", "Spearman correlation", higher_is_better=True)
        return ValidationMetric("accuracy", "accuracy", higher_is_better=True)

    @classmethod
    def default_task_config(cls, device: torch.device, model_table: Table) -> dict[str, Any]:
        """Return the pooling by the token that has read the whole text, where the model reads in one direction."""
        final_tokens = {"forward": "last", "backward": "cls"}
        direction = model_table.get("directions")
        return {"pooling": final_tokens[direction]} if direction in final_tokens else {}

    @classmethod
    def packs_texts(cls, task_table: Table) -> bool:
        return task_table.get("pooling") != HIERARCHICAL

    @classmethod
    def make_reader(cls, config: ClassifyConfig, data: DataConfig) -> LabelledReader:
        return LabelledReader()

    @classmethod
    def from_corpus(
        cls,
        config: ClassifyConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> ClassificationTask:
        labels = collect_labels(corpus, is_regression=config.kind == "score")
        compute_class_weights(config.class_weights, labels)  # refuses a mistake before the work
        return cls(
            config,
            pretrained_tokenizer
            or train_tokenizer(corpus.train_texts(0, 1), tokenizer_config, cls.special_token_names),
            labels,
        )

    def build_heads(self, config: EncoderModelConfig) -> Mapping[str, nn.Module]:
        n_outputs = 1 if self.config.kind == "score" else len(self.labels)
        hierarchical = self.config.pooling == HIERARCHICAL
        if hierarchical and config.d_model % 2:
            raise ConfigError(f"model.d_model = {config.d_model} is odd; hierarchical pooling needs an even width")
        closing = find_closing_tokens(self.tokenizer) if hierarchical else ()
        combination, width = self.build_layer_combination(config)
        pooler = Pooler(config, self.config.pooling, self.config.attention, closing, width)
        return {**combination, "pooler": pooler, "label": Linear(config.d_model, n_outputs)}

    @property
    def store_columns(self) -> tuple[ColumnSpec, ...]:
        return *self.input_columns, ScalarColumnSpec("label", "int32" if self.config.kind == "classes" else "float32")

    def encode(self, examples: Sequence[Example]) -> list[list[Any]]:
        """Return every window of every text with the text's class number, or its score."""
        parse_label = self.labels.index if self.config.kind == "classes" else float
        pairs = [(text, pair) for text, pair, _ in examples]
        windows = list(encode_text_windows(self.tokenizer, self.template, pairs, self.max_length))
        labels = [parse_label(examples[number][2]) for number, _ in windows]
        return [*input_entries([window for _, window in windows]), labels]

    def make_batch(self, store: TokenStore, placement: Placement) -> EncoderBatch:
        values, n_texts = store.values("label")[placement.items], max_texts_per_row(placement)
        if self.config.kind == "classes":
            labels = arrange_by_segment(values.astype(np.int64), placement, n_texts, IGNORE)
        else:
            labels = arrange_by_segment(self.labels.scale.standardise(values), placement, n_texts, math.nan)
        rows = self.pack_rows(store, placement)
        return EncoderBatch(rows, labels, len(placement.items), int((rows.segment > 0).sum()))

    def compute_loss(self, model: EncoderModel, batch: EncoderBatch) -> Loss:
        """Return weighted cross-entropy, or squared error of the standardised score, plus the penalty of hops."""
        hidden = model.features(batch.rows)
        outputs = compute_text_logits(model, hidden, batch.rows, batch.labels.shape[1])
        if self.config.kind == "classes":
            loss = self._classification_loss(outputs, batch.labels)
        else:
            loss = squared_error(outputs[..., 0], batch.labels)
        if not self.config.penalty:
            return loss
        return loss._replace(
            total=loss.total + self.config.penalty * self._compute_hop_redundancy(model, hidden, batch)
        )

    def _compute_hop_redundancy(
        self, model: EncoderModel, hidden: Float[Tensor, "B T D"], batch: EncoderBatch
    ) -> Float[Tensor, ""]:
        """Return the redundancy of the attention hops, summed over texts (Lin et al. 2017, eq. 8)."""
        pooler, own = model.heads["pooler"], make_text_mask(batch.rows, batch.labels.shape[1])
        assert isinstance(pooler, Pooler)
        redundancy = redundancy_penalty(pooler.pooling.hop_weights(hidden, batch.rows, own).flatten(0, 1))
        return torch.where(own.any(-1).flatten(), redundancy, 0.0).sum()

    def _classification_loss(self, outputs: Float[Tensor, "B S C"], labels: Int[Tensor, "B S"]) -> Loss:
        is_labelled = labels != IGNORE
        log_probs = outputs.float().log_softmax(-1)
        nll = -log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        weights = torch.tensor(self._class_weights, device=outputs.device)
        total = torch.where(is_labelled, nll * weights[labels.clamp(min=0)], 0.0).sum()
        return Loss(total, torch.where(is_labelled, nll, 0.0).sum().detach(), is_labelled.sum())

    def prepare_for_export(self, model: EncoderModel) -> None:
        """Fold the mean and deviation of the scores into the last layer."""
        head = model.heads["label"]
        assert isinstance(head, Linear)
        fold_scale_into(head, self.labels.scale)

    def compute_validation_metrics(
        self, model: EncoderModel, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        outputs = self.make_predictor(model, device).predict_inputs(read_stored_inputs(store, items))
        return self.compute_metrics(outputs, store.values("label")[items])

    def compute_metrics(self, outputs: Float[Tensor, "N C"], gold_labels: np.ndarray) -> dict[str, float]:
        """Return the metrics of outputs against gold labels; of two classes the second is the positive one."""
        if self.config.kind == "score":
            return regression_metrics(gold_labels, outputs[:, 0].double().numpy())
        gold, best = gold_labels.tolist(), outputs.argmax(-1).tolist()
        metrics = {"accuracy": accuracy(gold, best), "macro_f1": macro_f1(gold, best), "matthews": matthews(gold, best)}
        return metrics | ({"f1": f1(gold, best, 1)} if len(self.labels) == 2 else {})

    def make_predictor(self, model: EncoderModel, device: torch.device) -> ClassificationPredictor:
        """Return the predictor that classifies with a trained model."""
        is_regression = self.config.kind == "score"
        return ClassificationPredictor(model, self.tokenizer, self.labels, device, self.config.length, is_regression)

    def evaluate(
        self, model: EncoderModel, data: Sequence[str], columns: Sequence[str], skip_empty: bool, device: torch.device
    ) -> dict[str, Any]:
        """Return the metrics of the task on labelled texts."""
        classes = self.config.kind == "classes"
        problem = self.labels.describe_unknown if classes else describe_invalid_score
        examples = list(read_labelled_examples(data, columns, skip_empty=skip_empty, validate_label=problem))
        self._check_table_paired(labelled_paths(data)[0], examples[0])
        number = self.labels.index if classes else float
        gold = np.array([number(each.label) for each in examples])
        outputs = self.make_predictor(model, device).predict([(each.text, each.pair) for each in examples])
        return {"task": self.name, "n": len(examples), **self.compute_metrics(outputs, gold)}

    def _check_table_paired(self, path: Path, first: LabelledExample) -> None:
        """Refuse a table of pairs for a model of single texts, and the reverse, by its first example."""
        if expected := self.labels.describe_pair_mismatch(first.pair):
            content, columns = ("two texts", "TEXT,LABEL") if first.pair else ("one text", "TEXT,PAIR,LABEL")
            fix = f"ask for the columns {columns}"
            raise DataError(path, f"{content} a line, but this model was trained on {expected}; {fix}")
