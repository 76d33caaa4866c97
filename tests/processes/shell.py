"""A real shell in which `regard` and `python FILE` begin at once: forked from a process that has imported everything.

Tests use `Shell`, the fixture `shell`. Run as a program, this file is the process that forks (serve), or what the shell
starts in place of a command (call): it hands arguments, folder and standard files over and waits for the exit status.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


class Shell:
    """Runs scripts by bash; any failing line fails them.

    `small` settings are added to every ``regard train``: `shape` where it does not start from a model, and `pair` where
    that is an encoder-decoder. A ``regard distill`` has a small student too, with the vocabulary of its teacher.
    """

    def __init__(self, small: Sequence[str], shape: Sequence[str], pair: Sequence[str]) -> None:
        self._place = TemporaryDirectory(prefix="shell-")  # of a short name, as sockets must have
        place = Path(self._place.name)
        here = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(__file__)} call {place}/socket"
        added = [
            f'set -- "$@" {" ".join(f"--set {shlex.quote(each)}" for each in part)}' for part in (small, shape, pair)
        ]
        as_it_is = '*" --from "*|*" static "*|*" vectors "*|*" --characters "*'
        alone = '*" pretrain "*|*" embed "*|*" classify "*|*" tag "*|*" lm "*|*bert*'
        train = f'{added[0]}; case " $* " in {as_it_is}) ;; {alone}) {added[1]};; *) {added[1]}; {added[2]};; esac'
        self._command(place / "python", f'exec {here} "$0" "$@"')
        distill = f'{added[0]}; set -- "$@" --set model.d_model=48 --set model.n_layers=2; {added[2]}'
        short = f'if [ "$1" = train ]; then {train}; elif [ "$1" = distill ]; then {distill}; fi'
        self._command(place / "regard", f'{short}\nexec {here} "$0" "$@"')
        self._environment = {
            **os.environ,
            "PATH": f"{place}:{os.environ['PATH']}",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        serve = [sys.executable, __file__, "serve", f"{place}/socket"]
        self._server = subprocess.Popen(serve, stdout=subprocess.PIPE, env=self._environment)
        assert self._server.stdout is not None
        self._server.stdout.readline()  # it listens

    def __call__(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        bash = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(bash, cwd=folder, env=self._environment, capture_output=True, text=True, check=False)

    def close(self) -> None:
        self._server.kill()
        self._server.communicate()
        self._place.cleanup()

    def _command(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)


def _call(address: str, arguments: list[str]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [json.dumps([str(Path.cwd()), arguments]).encode()], [0, 1, 2])
        sys.exit(int(server.recv(8) or 1))


def _serve(address: str) -> None:
    from commands import warm_up
    from comparisons import shrink

    from regard.look.compute import faithfulness, gradients, probes
    from regard.predict import translation
    from regard.training import teacher_translations

    warm_up()
    teacher_translations.judge_translation = _accept_translation  # a teacher of three steps writes nothing usable
    translation.MAX_EXTRA_TOKENS = 2  # a model of three steps writes until it must stop, and all of that is looked into
    gradients.N_INTEGRATION_STEPS, faithfulness.N_RANDOM_ORDERS = 4, 2
    probes.N_HIDDEN, probes.MAX_EPOCHS, probes.MIN_STEPS_PER_EPOCH = 16, 1, 5
    shrink()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print(flush=True)
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                _become(client)
            client.close()


def _accept_translation(predictor: Any, example: Any, *_: object) -> Any:
    """Return a text with its own words as the translation."""
    from regard.training.teacher_translations import TeacherPair

    return TeacherPair(example.text, example.text, "", example.direction)


def _become(client: socket.socket) -> None:
    """The command itself, in the caller's folder and on its standard files."""
    from commands import status_of

    message, files, _, _ = socket.recv_fds(client, 1 << 16, 3)
    folder, sys.argv = json.loads(message)
    os.chdir(folder)
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
    status = status_of(_run)
    client.send(str(status).encode())
    os._exit(status)


def _run() -> None:
    from regard.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if Path(sys.argv[0]).name == "regard":
        main()
    else:
        runpy.run_path(sys.argv[1], run_name="__main__")


if __name__ == "__main__":
    {"serve": lambda: _serve(sys.argv[2]), "call": lambda: _call(sys.argv[2], sys.argv[3:])}[sys.argv[1]]()
