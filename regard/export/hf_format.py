"""Export to a Hugging Face directory (models/exchange writes it), run by transformers where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.export.comparison import Comparison
from regard.export.encoder_outputs import TYPES, compute_samples, pad_inputs, select_tokens
from regard.export.export_format import EXTRA, ExportFormat
from regard.export.source_model import SourceModel
from regard.models import exchange
from regard.progress import warn
from regard.text.languages import ONE_DIRECTION, language_token

LONGEST_TRANSLATION = 50
"""The tokens of a translation in the script of the model card, at most."""

AUTO_CLASSES = {
    "pretrain": "AutoModel",
    "embed": "AutoModel",
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "qa": "AutoModelForQuestionAnswering",
    "lm": "AutoModelForCausalLM",
    "translate": "AutoModelForSeq2SeqLM",
}
"""The class of transformers that loads the model of each task."""


class HFFormat(ExportFormat):
    """Models that have a counterpart in transformers."""

    name, engine, modules = "hf", "transformers", ("transformers",)

    def require_engine(self) -> None:
        """Warn that nothing checks the result, since writing it needs no engine."""
        if not self.is_installed():
            warn(f"transformers is not installed, so nothing checks the result; run: pip install 'regard[{EXTRA}]'")

    def check_expressible(self, source: SourceModel) -> None:
        model = exchange.to_exchangeable(source.model)
        family = exchange.choose_hf_family(model, source.task.tokenizers)
        family.check_vocabularies(model, source.task.tokenizers)
        family.to_hf_config(model)

    def write(self, directory: Path, source: SourceModel, quantization: str) -> None:
        task = source.task
        exchange.write_hf_directory(directory, source.model, source.task_table, task.tokenizers, task.labels.names)

    def compare(self, directory: Path, source: SourceModel, comparison: Comparison) -> None:
        if not self.is_installed():
            return
        with _quiet_transformers():
            theirs = _load(directory)
            if source.is_translator:
                _compare_translator(theirs, source, comparison)
            else:
                _compare_outputs(theirs, source, comparison)

    def usage(self, directory_name: str, source: SourceModel) -> str:
        usage = TRANSLATOR_USAGE if source.is_translator else USAGE
        if source.is_language_model:
            usage = LANGUAGE_MODEL_USAGE
        longest = min(LONGEST_TRANSLATION, source.network.config.n_positions - 1)
        return usage.format(
            directory=directory_name,
            auto_class=AUTO_CLASSES[source.task_table["name"]],
            longest=longest,
            text=_sample_text(source),
        )


def _sample_text(source: SourceModel) -> str:
    """Return a text for the script of the model card, with the token of a language where the model needs one."""
    directions = getattr(source.task, "directions", ONE_DIRECTION)
    return f"{language_token(directions.targets[0])} I am good" if directions.is_tagged else "I am good"


def _load(directory: Path) -> Any:
    """Return the model by the class that config.json names."""
    import transformers

    name = transformers.AutoConfig.from_pretrained(directory).architectures[0]
    bare = {"add_pooling_layer": False} if name in ("BertModel", "RobertaModel", "XLMRobertaModel") else {}
    model_class = getattr(transformers, name)
    if bare and _has_pooler(directory):
        bare = {}
    return model_class.from_pretrained(directory, **bare).eval()


def _has_pooler(directory: Path) -> bool:
    from safetensors import safe_open

    with safe_open(directory / "model.safetensors", framework="pt") as tensors:
        return any("pooler" in name for name in tensors.keys())  # noqa: SIM118  not a dict


@torch.inference_mode()
def _compare_translator(theirs: Any, source: SourceModel, comparison: Comparison) -> None:
    task: Any = source.task
    special = task.special_tokens
    pairs = source.sample_pairs()
    encoded = [special.wrap_source(ids) for ids, _ in pairs]
    decoded = [special.wrap_target_in(ids) for _, ids in pairs]
    inputs, outputs = (pad_inputs(side, [len(ids) for ids in side], special.pad_id) for side in (encoded, decoded))
    logits = theirs(
        input_ids=torch.from_numpy(inputs["input_ids"]),
        attention_mask=torch.from_numpy(inputs["attention_mask"]),
        decoder_input_ids=torch.from_numpy(outputs["input_ids"]),
        decoder_attention_mask=torch.from_numpy(outputs["attention_mask"]),
    ).logits
    predictor = task.make_predictor(source.network, torch.device("cpu"))
    batch = predictor.make_batch(pairs)
    ours = source.network(batch.source, batch.target_in)
    lengths = [len(ids) for ids in decoded]
    comparison.check_values(
        "logits",
        [row[:n] for row, n in zip(ours, lengths, strict=True)],
        [row[:n] for row, n in zip(logits, lengths, strict=True)],
    )


@torch.inference_mode()
def _compare_outputs(theirs: Any, source: SourceModel, comparison: Comparison) -> None:
    """Compare every output that both sides have, of an encoder or a language model."""
    samples = compute_samples(source)
    feeds = dict(samples.feeds)
    if source.is_language_model or source.network.config.n_parts < 2:
        del feeds[TYPES]
    result = theirs(**{name: torch.from_numpy(values) for name, values in feeds.items()})
    for name, ours in samples.outputs.items():
        values = getattr(
            result, "prediction_logits" if hasattr(result, "prediction_logits") and name == "logits" else name, None
        )
        if values is not None:
            comparison.check_values(name, ours, select_tokens(ours, values))
    assert comparison.largest, f"{type(theirs).__name__} has none of the outputs {', '.join(samples.outputs)}"


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress what transformers prints while it loads."""
    from transformers.utils import logging

    level, showed_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if showed_progress:
            logging.enable_progress_bar()


USAGE = """\
from transformers import AutoTokenizer, {auto_class}

directory = "{directory}"
tokenizer = AutoTokenizer.from_pretrained(directory)
model = {auto_class}.from_pretrained(directory)

outputs = model(**tokenizer("I am good", return_tensors="pt"))
print(outputs[0])
"""

TRANSLATOR_USAGE = """\
from transformers import AutoTokenizer, {auto_class}

directory = "{directory}"
tokenizer = AutoTokenizer.from_pretrained(directory)
model = {auto_class}.from_pretrained(directory)

ids = model.generate(**tokenizer("{text}", return_tensors="pt"), num_beams=4, max_new_tokens={longest})
print(tokenizer.decode(ids[0], skip_special_tokens=True))
"""

LANGUAGE_MODEL_USAGE = """\
from transformers import AutoTokenizer, {auto_class}

directory = "{directory}"
tokenizer = AutoTokenizer.from_pretrained(directory)
model = {auto_class}.from_pretrained(directory)

ids = model.generate(**tokenizer("Once upon a time", return_tensors="pt"), max_new_tokens=20, do_sample=True)
print(tokenizer.decode(ids[0], skip_special_tokens=True))
"""
