"""Say what a model is and how it was made: task, parameters, vocabulary, training, the whole recipe."""

from __future__ import annotations

from regard.cli.options import Json, Model, print_json


def info(model: Model, as_json: Json = False) -> None:
    import regard

    about = regard.load(model, device="cpu").info()
    if as_json:
        print_json(about)
        return
    for key in ("task", "architecture", "parameters", "vocabulary"):
        value = about[key]
        print(f"{key:<14}{value:,}" if isinstance(value, int) else f"{key:<14}{value}")
    for part in ("training", "config"):
        for key, value in about[part].items():
            shown = "  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
            print(f"{part + '.' + key:<22}{shown}")
