"""Export of a model: write it for another engine, run it there beside regard, and keep it if it is the same model.

Everything is written into a temporary directory, which is removed if anything fails; its files are moved into place
last.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from regard.disk import TEMPORARY_PREFIX, TEMPORARY_SUFFIX, convert_write_errors, fsync_path
from regard.errors import InputError
from regard.export.comparison import Comparison
from regard.export.ctranslate2_format import CTranslate2Format
from regard.export.export_format import ExportFormat
from regard.export.hf_format import HFFormat
from regard.export.model_card import UNKNOWN_LICENCE, write_model_card
from regard.export.onnx_format import OnnxFormat
from regard.export.source_model import SourceModel
from regard.progress import print_message
from regard.runs.directory_lock import DirectoryLock
from regard.runs.import_export import check_output_directory, export_word_vectors
from regard.runs.model_loading import open_model
from regard.tasks.vectors import WordVectorTask

FORMATS: dict[str, ExportFormat] = {each.name: each for each in (HFFormat(), CTranslate2Format(), OnnxFormat())}
WORD2VEC = "word2vec"
EXPORT_FORMATS = (*FORMATS, WORD2VEC)
"""Formats that a model can be exported to."""


def export_model(
    path: Path, out: Path, export_format: str, *, quantization: str = "", licence: str = UNKNOWN_LICENCE
) -> Path:
    """Write a model for another engine, which must give the same outputs, or word vectors as a file.

    Args:
        path: A run directory or a Hugging Face directory.
        out: The directory to write, which must not exist or be empty.
        export_format: One of `EXPORT_FORMATS`.
        quantization: The type of the weights, if the format has others than float32.
        licence: The licence in the model card, by its name on the Hub.
    """
    if export_format not in EXPORT_FORMATS:
        raise InputError(f"--to {export_format}: accepted: {', '.join(EXPORT_FORMATS)}")
    accepted = FORMATS[export_format].quantizations if export_format in FORMATS else ()
    if quantization and quantization not in accepted:
        fix = f"accepted: {', '.join(accepted)}" if accepted else "this format has none; leave it out"
        raise InputError(f"--quantization {quantization}: not for --to {export_format}; {fix}")
    if export_format == WORD2VEC:
        return export_word_vectors(path, out)
    with DirectoryLock(out):
        check_output_directory(out)
        FORMATS[export_format].require_engine()
        _export(open_source(path), out, FORMATS[export_format], quantization, licence)
    return out


def open_source(path: Path) -> SourceModel:
    """Return a model that can be exported; what its task does to its outputs is folded into its weights."""
    run_config, task, model = open_model(path)
    if isinstance(task, WordVectorTask):
        raise InputError(f"{path}: word vectors; pass --to {WORD2VEC}")
    if task.export_problem:
        raise InputError(f"{task.export_problem}, so this model cannot be exported")
    task.prepare_for_export(model)
    return SourceModel(path, run_config, task, model)


def _export(source: SourceModel, out: Path, target: ExportFormat, quantization: str, licence: str) -> None:
    """Write, check and move into place; float32 is checked first where the weights are quantized."""
    names = {"prefix": TEMPORARY_PREFIX, "suffix": TEMPORARY_SUFFIX}
    with (
        convert_write_errors(out, fix="choose another --out"),
        TemporaryDirectory(dir=out, **names, ignore_cleanup_errors=True) as aside,
    ):
        if quantization:
            write_and_compare(source, Path(aside) / "float32", target, "")
        directory = Path(aside) / "model"
        comparison = write_and_compare(source, directory, target, quantization)
        write_model_card(directory, source, target, comparison, out.resolve().name, licence)
        for each in sorted(directory.iterdir()):
            each.replace(out / each.name)
        fsync_path(out)
    _report(comparison)


def write_and_compare(source: SourceModel, directory: Path, target: ExportFormat, quantization: str) -> Comparison:
    """Write the files of the engine into a new directory, and return how their outputs compare with regard's."""
    target.check_expressible(source)
    directory.mkdir()
    target.write(directory, source, quantization)
    comparison = Comparison(target.engine, quantization)
    target.compare(directory, source, comparison)
    return comparison


def _report(comparison: Comparison) -> None:
    """Report the result of the comparison."""
    if comparison.largest:
        print_message(f"{comparison.engine} gives the same; largest differences: {comparison.summary()}")
    for name, error in comparison.errors.items():
        print_message(
            f"error of {name} by {comparison.quantization} weights: {error:.1%} of the deviation of the values"
        )
