"""The claims for the Transformer over recurrence, measured on the user's own machine (SPEC 9).

    part.py          what a part is: numbers found, and what they show       folder.py    parts on the disk
    cost.py          layers.py, timing.py, measured.py, fits.py, cost_claims.py
    recall.py        copying.py
    translation.py   flops.py, positions.py: corpora.py, made_up.py, runs.py
    contenders.py    the models, as tables of recipes                        report.py    one page; charts.py, plain.py

`compare` measures part after part and keeps each as it ends; the command line prints what it yields.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from regard.compare import corpora, cost, flops, positions, recall, translation
from regard.compare.folder import Folder, Kept
from regard.compare.machine import machine
from regard.compare.part import Part, Setting
from regard.errors import InputError, MissingExtra, did_you_mean
from regard.progress import say
from regard.train.device import device_named

PARTS: dict[str, Part] = {
    "cost": cost.PART,
    "recall": recall.PART,
    "translation": translation.PART,
    "flops": flops.PART,
    "positions": positions.PART,
}

USUAL = ("cost", "recall", "translation", "flops")
"""What is measured where nobody asks for less, or for more."""


def asked_for(names: Sequence[str]) -> list[str]:
    """The parts to measure, in order, with those that they need."""
    for name in names:
        if name not in PARTS:
            raise InputError(f"no part is called '{name}'; {did_you_mean(name, PARTS)}")
    chosen = set(names or USUAL)
    chosen |= {other for name in chosen for other in PARTS[name].needs}
    return [name for name in PARTS if name in chosen]


def compare(setting: Setting, names: Sequence[str], command: str) -> Iterator[tuple[str, Kept]]:
    """Measure parts; gives each as it ends. What the folder holds already is taken over, by the same settings."""
    chosen = asked_for(names)
    device_named(setting.device)
    if setting.seed < 0:
        raise InputError(f"seed {setting.seed}; expected 0 or more")
    folder = Folder(setting)
    corpora.check(setting, [name for name in chosen if not folder.has(name)])
    folder.begin()
    for number, name in enumerate(chosen, 1):
        part = PARTS[name]
        if folder.has(name):
            say(f"{number}/{len(chosen)} {part.title.lower()}: measured before")
        else:
            say(f"{number}/{len(chosen)} {part.title.lower()}")
            began = time.perf_counter()
            found = part.measure(setting, folder.found())
            folder.keep(name, Kept(found, machine(setting.device), time.perf_counter() - began, command))
        _publish(folder, name)
        yield name, folder.read(name)


def _publish(folder: Folder, name: str) -> None:
    """Draw the figure of a part, and write the page of all parts that are there."""
    from regard.compare.report import report

    try:
        PARTS[name].draw(folder.read(name).found, folder.figure(name))
    except MissingExtra as error:
        say(f"no figure: {error}")
    there = {each: folder.read(each) for each in PARTS if folder.has(each)}
    folder.write_report(report({each: (PARTS[each], kept, folder.figure(each)) for each, kept in there.items()}))
