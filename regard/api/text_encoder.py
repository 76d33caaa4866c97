"""The base of all encoders: a text, or a pair of texts, becomes hidden vectors that can be embedded and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from regard.api.embedding_model import EmbeddingModel
from regard.api.inputs import check_text
from regard.api.model import TokenIds
from regard.data.batches import SegmentedRows
from regard.look.compute.look_target import LookTarget, Side
from regard.look.inspection import Inspection
from regard.models.interfaces import EncoderModel
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.input_length import check_fits
from regard.runs.recipe import RunConfig
from regard.tasks import Task
from regard.tasks.shared.encoder_task import EncoderTask
from regard.text.special_tokens import EncodedInput


class TextEncoder(EmbeddingModel):
    """A trained encoder of any kind: a `MaskedLanguageModel`, a `Classifier`, a `Tagger`, a `QuestionAnswerer`
    or a `SentenceEncoder`.

    Example:
        >>> encoder = regard.TextEncoder.load("runs/bert")
        >>> encoder.embed(["a man is asleep", "somebody sleeps"]).shape
    """

    network: EncoderModel

    def __init__(self, path: Path, run_config: RunConfig, task: Task, network: nn.Module, device: torch.device) -> None:
        super().__init__(path, run_config, task, network, device)
        assert isinstance(task, EncoderTask)
        assert isinstance(network, EncoderModel)
        self.encoder_task, self.network = task, network

    @property
    def _max_text_tokens(self) -> int:
        return self.network.config.n_positions - self.encoder_task.template.n_special_tokens(is_pair=False)

    @property
    def _vocabulary_size(self) -> int:
        return len(self.encoder_task.tokenizer)

    def _encode_texts(self, example: Sequence[str]) -> list[TokenIds]:
        return [self.encoder_task.tokenizer.encode(text) for text in example]

    def look(self, text: str, pair: str | None = None) -> Inspection:
        """Look inside the model while it reads a text, or a pair of texts.

        Args:
            text: The text; for a masked language model it may contain [MASK].
            pair: The second text, for a model that reads pairs.

        Returns:
            An `Inspection`: `attention("encoder")`, `effective_attention("encoder")`, `attribution(layer=3)` and
            others, each a torch tensor; `show()` in a notebook or terminal, `save("look.html")` anywhere.
        """
        encoded = self._encode_look_input(check_text(text), pair)
        check_fits(len(encoded.ids), self.network.config.n_positions, text="the text with its special tokens")
        about = {"model": str(self.path), "text": text, **({"pair": pair} if pair else {})}
        target, rows = self._build_hidden_state_target(encoded)
        return Inspection(self._add_prediction(target, rows, text), {**about, **self._describe_prediction(text, pair)})

    def _describe_prediction(self, text: str, pair: str | None) -> dict[str, object]:
        """Return the prediction for the text in words; hidden vectors alone predict nothing."""
        return {}

    def _encode_look_input(self, text: str, pair: str | None) -> EncodedInput:
        sides = self._encode_texts([text] if pair is None else [text, pair])
        return self.encoder_task.template.wrap(sides[0], sides[1] if pair is not None else None)

    def _build_look_target(self, *sides: TokenIds) -> LookTarget:
        return self._build_hidden_state_target(self.encoder_task.template.wrap(*sides[:2]))[0]

    def _build_hidden_state_target(self, encoded: EncodedInput) -> tuple[LookTarget, SegmentedRows]:
        """Build the forward pass up to the hidden vectors, and return it with its batch of one row."""
        tokenizer, network = self.encoder_task.tokenizer, self.network
        rows = inputs_to_rows([encoded], self.encoder_task.template.pad_id).to(self.device)
        tokens, words = tokenizer.display_tokens(encoded.ids), tokenizer.words(encoded.ids)
        side = Side(tokens, words, "embedding.out", directions=getattr(network.config, "directions", "both"))
        no_ids = rows.ids.new_zeros(0).long()
        target = LookTarget(
            network, {"encoder": side}, run_layers=lambda: network.features(rows), head=None, predicted_ids=no_ids
        )
        return target, rows

    def _add_prediction(self, target: LookTarget, rows: SegmentedRows, text: str) -> LookTarget:
        """Return the target with the head of this model and its prediction for the text."""
        return target
