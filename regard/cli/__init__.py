"""The command line: one module per verb, imported only when that verb is called.

Results go to stdout, everything else to stderr. A user's mistake is one line ``error: ...`` and exit status 2; a
traceback only with ``--debug``. No module here imports torch before its verb runs.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from io import UnsupportedOperation
from keyword import iskeyword
from typing import Any, NoReturn

from regard import __version__
from regard.errors import RegardError, did_you_mean

VERBS = {
    "demo": "take the tour: make a corpus, train a translator on it in a minute or two, look inside it",
    "train": "train a model from text files, with a recipe or without one",
    "distill": "train a small translator on the translations of a large one",
    "shortlist": "learn which few tokens a translation may contain, for faster translation on a CPU",
    "translate": "translate texts, a file, or standard input",
    "generate": "continue a text with a language model",
    "fill": "predict the words that [MASK] stands for",
    "next": "predict whether one text follows another",
    "classify": "classify or score texts, or pairs of texts",
    "tag": "label the words of texts",
    "answer": "answer questions by a span of a text",
    "embed": "compute the vectors of texts, words or tokens",
    "match": "compute the similarity of two texts, search a file for similar texts, find nearest words",
    "cluster": "cluster texts by meaning, and draw a map of them",
    "evaluate": "score a model on test data",
    "identify": "measure how many tokens can be identified from their hidden vectors, layer by layer",
    "look": "look inside a model: what it attended to, and whether to trust that",
    "compare": "test the claims made for the Transformer against recurrent networks on this machine",
    "models": "list the ready-made models, whose names stand wherever a MODEL is asked for",
    "info": "describe a model and its training",
    "export": "write a model as a directory or file that other libraries load",
    "import": "convert a Hugging Face model directory to a run directory",
}

DEBUG_HELP = "Every verb takes --debug, which shows the traceback of an error."

USAGE = f"""usage: regard VERB ...          regard VERB --help explains a verb

{{verbs}}

regard {__version__} trains Transformers on your own text, uses them, and looks inside them.
{DEBUG_HELP} regard --version prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``regard``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        if not given or given[0] in ("-h", "--help", "help"):
            print(USAGE.format(verbs="\n".join(f"    {verb:<12}{line}" for verb, line in VERBS.items())), flush=True)
        elif given[0] == "--version":
            print(__version__, flush=True)
        elif given[0] not in VERBS:
            _exit_with_error(f"unknown verb '{given[0]}'; {did_you_mean(given[0], VERBS)}")
        else:
            sys.exit(_run_verb(given[0], given[1:], debug))
    except BrokenPipeError:
        _discard_output()
    except MemoryError:
        if debug:
            raise
        _exit_with_error("out of memory; give less text at a time, or a smaller batch or model (--debug shows where)")
    except OSError as error:
        _discard_output()
        if debug:
            raise
        _exit_with_error(_describe_os_error(error))


def _run_verb(verb: str, arguments: list[str], debug: bool) -> int:
    """Run a verb and return its exit status."""
    import typer

    usage_error: Any = typer.BadParameter.__bases__[0]  # click's; newer releases of typer carry their own copy
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    name = module_name(verb)
    module = importlib.import_module(f"regard.cli.{name}")
    # A "\b" line keeps typer from wrapping the indented examples into a paragraph.
    help_text = (module.__doc__ or "").replace("\n\n    ", "\n\n\b\n    ")
    app.command(help=help_text, epilog=DEBUG_HELP)(_ignore_broken_pipe(getattr(module, name)))
    try:
        return app(arguments, prog_name=f"regard {verb}", standalone_mode=False) or 0
    except RegardError as error:
        if debug:
            raise
        _exit_with_error(str(error))
    except usage_error as error:
        if debug:
            raise
        _exit_with_error(f"{error.format_message()} (see: regard {verb} --help)")
    except OSError as error:
        if debug or error.filename is None:
            raise
        _exit_with_error(f"{os.fsdecode(error.filename)}: {error.strerror}; give another path")


def module_name(verb: str) -> str:
    """Return the name of a verb's module and function, which is no keyword and no built-in function."""
    return f"{verb}_" if iskeyword(verb) or hasattr(builtins, verb) else verb


def _ignore_broken_pipe(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that it ends quietly when the reader of its output closes the pipe (``regard ... | head``)."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()

    return run


def _describe_os_error(error: OSError) -> str:
    """Return one line about an error of the operating system; it names no file if that is stdout."""
    cause = error.strerror or str(error)
    if error.filename is None:
        return f"standard output: cannot be written ({cause}); make room, or send it elsewhere"
    return f"{error.filename}: {cause}; correct the path, or make room (--debug shows more)"


def _discard_output() -> None:
    """Discard what is still buffered for stdout, which would fail once more at exit."""
    with suppress(UnsupportedOperation):  # a stream in memory
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_with_error(message: str) -> NoReturn:
    """Print one line, whatever characters an argument in it has, and exit with status 2."""
    line = "".join(each if each.isprintable() or each == "\t" else ascii(each)[1:-1] for each in message)
    with suppress(OSError):  # nothing can be said on a full device; the exit status remains
        print(f"error: {line}", file=sys.stderr)
    sys.exit(2)
