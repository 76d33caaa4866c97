"""The harness of the benchmarks: warm-up, rounds, options, and the rounds of the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.training.loop import TrainingEvent

BENCH = Path(__file__).parent.parent.parent / "bench"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    import harness

    return harness


def test_smoke_sets_defaults_that_options_override(harness: Any) -> None:
    parser = harness.SpeedParser("", rounds=5, smoke={"size": 2})
    parser.add_argument("--size", type=int, default=100)
    assert vars(parser.parse([])) == {"smoke": False, "device": "cpu", "rounds": 5, "size": 100}
    parser = harness.SpeedParser("", rounds=5, smoke={"size": 2})
    parser.add_argument("--size", type=int, default=100)
    assert vars(parser.parse(["--smoke", "--rounds", "3"])) == {
        "smoke": True, "device": "cpu", "rounds": 3, "size": 2,
    }  # fmt: skip


def test_arms_are_selected_by_number_and_by_how_their_names_begin(
    harness: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parser, arms = harness.ArmsParser("", smoke={}), {"frozen, last": "a", "tuned": "b", "frozen, mix": "c"}
    assert parser.select_arms(arms, None) == {1: ("frozen, last", "a"), 2: ("tuned", "b"), 3: ("frozen, mix", "c")}
    assert list(parser.select_arms(arms, ["frozen"])) == list(parser.select_arms(arms, ["3", "frozen, l"])) == [1, 3]
    with pytest.raises(SystemExit) as ended:
        parser.select_arms(arms, ["2", "4"])
    assert ended.value.code == 2
    assert "--arms: no arm '4'; arms: 1 frozen, last; 2 tuned; 3 frozen, mix" in capsys.readouterr().err


def test_scores_of_seeds_are_mean_lowest_and_highest(harness: Any) -> None:
    assert harness.format_scores([0.5, 0.25, 0.3], digits=1).split() == ["35.0", "25.0", "to", "50.0"]
    assert harness.format_scores([0.5], digits=2).split() == ["50.00"]


def test_interrupted_script_ends_with_one_line(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        harness.run_script(interrupt)
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "interrupted\n")


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.name)
def test_every_script_ends_cleanly_on_an_interrupt(path: Path) -> None:
    _, has_main, start = path.read_text(encoding="utf-8").partition('if __name__ == "__main__":\n')
    assert start.strip() == ("harness.run_script(main)" if has_main else "")


def test_warm_up_continues_while_graphs_are_recompiled(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = iter([0, 3, 3, 4, 4, 4])  # before and after each round: the first two recompile
    monkeypatch.setattr(harness, "count_compiled_graphs", lambda: next(graphs))
    monkeypatch.setattr(harness, "time_round", lambda *_: harness.Round(100, 1.0))
    assert harness.warm_up(lambda: 100, "cpu") == 3


def test_warm_up_continues_until_the_speed_is_stable(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([8.0, 4.0, 1.0, 1.02])
    monkeypatch.setattr(harness, "count_compiled_graphs", lambda: 0)
    monkeypatch.setattr(harness, "time_round", lambda *_: harness.Round(100, next(seconds)))
    assert harness.warm_up(lambda: 100, "cpu") == 4


def test_warm_up_ends_at_its_limit(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = iter(range(100))
    monkeypatch.setattr(harness, "count_compiled_graphs", lambda: next(graphs))
    assert harness.warm_up(lambda: 1, "cpu", at_most=5) == 5


def test_compiled_graphs_are_counted(harness: Any) -> None:
    import torch

    before = harness.count_compiled_graphs()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert harness.count_compiled_graphs() == before + 1


def test_rounds_are_interleaved(harness: Any) -> None:
    calls: list[str] = []
    contenders = {name: (lambda name=name: calls.append(name) or 1) for name in "ab"}
    rounds = harness.time_rounds(contenders, "cpu", 2)
    assert calls == ["a", "b", "a", "b"]
    assert {name: len(each) for name, each in rounds.items()} == {"a": 2, "b": 2}


def test_table_gives_medians_and_the_ratio_to_the_first(harness: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = {
        "regard": [harness.Round(100, 1.0), harness.Round(300, 1.0), harness.Round(200, 1.0)],
        "peer, eager": [harness.Round(100, 1.0)],
    }
    harness.print_speeds("tiny", rounds, steps=10, notes={"regard": "utilisation 3.0%"})
    title, header, first, second = capsys.readouterr().out.splitlines()
    assert (title, header.split()) == ("tiny", ["tokens/s", "ms", "per", "step", "regard", "/", "this"])
    assert first.split() == ["regard", "200", "100.00", "1.00x", "utilisation", "3.0%"]
    assert second.split() == ["peer,", "eager", "100", "100.00", "2.00x"]


def test_packages_that_are_not_installed_are_skipped_with_a_line(
    harness: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not harness.is_installed("no_such_package")
    assert capsys.readouterr().out == "no_such_package: skipped, not installed\n"


def test_only_log_events_are_rounds(harness: Any) -> None:
    from regard_training import _count_logged_tokens

    def train() -> Iterator[TrainingEvent]:
        yield TrainingEvent("log", 1, {"tokens": 10})
        yield TrainingEvent("valid", 1, {"valid_loss": 1.0})
        yield TrainingEvent("save", 1, {})
        yield TrainingEvent("log", 2, {"tokens": 25})
        yield TrainingEvent("interrupted", 2, {})

    rounds = _count_logged_tokens(SimpleNamespace(train=train))  # type: ignore[arg-type]
    assert [next(rounds), next(rounds)] == [10, 15]
    with pytest.raises(KeyboardInterrupt):
        next(rounds)


def test_every_shape_is_seen_in_the_first_round_of_a_peer(harness: Any) -> None:
    import peers
    import torch

    batches = [peers.PeerBatch({"x": torch.ones(n, 2)}, n) for n in (1, 2, 3)]
    seen: list[int] = []

    def loss(model: Any, inputs: Any) -> torch.Tensor:
        seen.append(len(inputs["x"]))
        return model(inputs["x"]).sum()  # type: ignore[no-any-return]

    options = SimpleNamespace(device="cpu", steps=2, compile_backend="eager")
    rounds = peers.train_peer(torch.nn.Linear(2, 1), batches, options, "eager", loss=loss)
    assert next(rounds) == 6
    assert seen == [1, 2, 3]
    assert next(rounds) == 3
