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
from regard.export.model_card import UNKNOWN_LICENCE, CardOptions, write_model_card
from regard.export.onnx_format import OnnxFormat
from regard.export.regard_format import RegardFormat
from regard.export.source_model import SourceModel
from regard.models.weights import share_weights
from regard.progress import print_message, warn
from regard.runs.directory_lock import DirectoryLock
from regard.runs.import_export import check_output_directory, export_word_vectors
from regard.runs.model_loading import open_model
from regard.runs.ready_made import locate_model
from regard.runs.run_directory import RunDirectory
from regard.tasks.vectors import WordVectorTask
from regard.text.files import read_text

FORMATS: dict[str, ExportFormat] = {
    each.name: each for each in (HFFormat(), CTranslate2Format(), OnnxFormat(), RegardFormat())
}
WORD2VEC = "word2vec"
EXPORT_FORMATS = (*FORMATS, WORD2VEC)
"""Formats that a model can be exported to."""


def export_model(
    path: Path,
    out: Path,
    export_format: str,
    *,
    quantization: str = "",
    licence: str = UNKNOWN_LICENCE,
    notes: Path | None = None,
    base: str | Path | None = None,
) -> Path:
    """Write a model for another engine, which must give the same outputs, or word vectors as a file.

    Args:
        path: A run directory, a Hugging Face directory, or the name of a ready-made model.
        out: The directory to write, which must not exist or be empty.
        export_format: One of `EXPORT_FORMATS`.
        quantization: The type of the weights, if the format has others than float32.
        licence: The licence in the model card, by its name on the Hub.
        notes: A file of Markdown that the model card ends with: data, attribution, limits.
        base: For regard, a directory of this format whose weights are not written again (models/shared_weights.py).
    """
    if export_format not in EXPORT_FORMATS:
        raise InputError(f"--to {export_format}: accepted: {', '.join(EXPORT_FORMATS)}")
    accepted = FORMATS[export_format].quantizations if export_format in FORMATS else ()
    if base is not None and export_format != RegardFormat.name:
        raise InputError(f"--base: not for --to {export_format}; leave it out")
    if quantization and quantization not in accepted:
        fix = f"accepted: {', '.join(accepted)}" if accepted else "this format has none; leave it out"
        raise InputError(f"--quantization {quantization}: not for --to {export_format}; {fix}")
    card = CardOptions(licence, read_text(notes) if notes else "")
    if export_format == WORD2VEC:
        return export_word_vectors(path, out)
    with DirectoryLock(out):
        check_output_directory(out)
        target = FORMATS[export_format]
        target.require_engine()
        base_path = None if base is None else RunDirectory(locate_model(base)).weights_path
        _export(open_source(path, folded=not target.knows_tasks), out, target, quantization, card)
        if base_path is not None:
            _share_weights(out, base_path)
    return out


def _share_weights(out: Path, base_path: Path) -> None:
    """Leave out the weights that the base has, and say how many."""
    n_shared = share_weights(RunDirectory(out).weights_path, base_path)
    if not n_shared:
        warn(f"{out}: shares no weights with {base_path}; were they frozen (train.freeze), and stored in as many bits?")
    else:
        print_message(f"{n_shared} tensors are those of {base_path}, which the directory needs from now on")


def open_source(path: Path, *, folded: bool = True) -> SourceModel:
    """Return a model that can be exported; if `folded`, with what its task does to its outputs in its weights."""
    path = locate_model(path)
    run_config, task, model = open_model(path)
    if isinstance(task, WordVectorTask):
        raise InputError(f"{path}: word vectors; pass --to {WORD2VEC}")
    if folded:
        if task.export_problem:
            raise InputError(f"{task.export_problem}, so this model cannot be exported")
        task.prepare_for_export(model)
    return SourceModel(path, run_config, task, model)


def _export(source: SourceModel, out: Path, target: ExportFormat, quantization: str, card: CardOptions) -> None:
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
        write_model_card(directory, source, target, comparison, out.resolve().name, card)
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
