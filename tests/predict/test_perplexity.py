"""How likely text is: by token, word and character, in windows of any stride; every token counts once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from encoders import CPU
from language_models import BYTES, DOCUMENTS, LETTERS, small, task

from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.predict import perplexity as likelihood
from regard.predict.perplexity import sliding_windows
from regard.tasks.lm import LanguageModelTask
from regard.text import documents


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 40])
@pytest.mark.parametrize(("width", "stride"), [(1, 1), (8, 8), (8, 1), (8, 3), (5, 4)])
def test_every_token_counts_once_and_sees_enough(n: int, width: int, stride: int) -> None:
    counted = []
    for start, end, done in sliding_windows(n, width, stride):
        assert end - start <= width
        for token in range(done + 1, end + 1):
            counted.append(token)
            assert token - start >= min(token, width - stride + 1)
    assert counted == list(range(1, n + 1))


def plain(
    of: LanguageModelTask, model: torch.nn.Module, texts: list[str], width: int, stride: int
) -> tuple[float, int]:
    """Every token by itself, behind what it sees."""
    total, count = 0.0, 0
    for text in texts:
        ids = [of.start_id, *of.tokenizer.encode(text), of.end_id]
        for token in range(1, len(ids)):
            windows = (place for place in range(0, len(ids), stride) if token <= place + width)
            seen = ids[next(windows) : token]
            log_probs = model(sentences_to_rows([seen], pad_id=0))[0, -1].log_softmax(-1)
            total, count = total - float(log_probs[ids[token]]), count + 1
    return total, count


@pytest.mark.parametrize("tokenizer", [BYTES, LETTERS], ids=["bytes", "characters"])
@pytest.mark.parametrize(("window", "stride"), [(None, None), (8, None), (8, 3), (16, 4), (None, 5)])
@torch.no_grad()
def test_the_plain_definition(tmp_path: Path, tokenizer: object, window: int | None, stride: int | None) -> None:
    of = task(tokenizer)  # type: ignore[arg-type]
    model, texts = small(of, n_layers=1), [text[:40].strip() for text in DOCUMENTS[:3]]
    path = tmp_path / "text.txt"
    path.write_text("\n\n\n".join(texts) + "\n")
    found = of.evaluate(model, [str(path)], CPU, window, stride)
    nll, n_tokens = plain(of, model, texts, window or 16, stride or window or 16)
    assert (found.n_tokens, found.n_documents) == (n_tokens, 3)
    assert found.nll == pytest.approx(nll, rel=1e-9)
    assert found.n_words == sum(len(text.split()) for text in texts)
    assert found.n_characters == sum(map(len, texts))
    assert found.loss == pytest.approx(nll / n_tokens)
    assert found.perplexity == pytest.approx(math.exp(nll / n_tokens))
    assert found.word_perplexity == pytest.approx(math.exp(nll / found.n_words))
    assert found.bits_per_character == pytest.approx(nll / math.log(2) / found.n_characters)


@pytest.mark.parametrize("most", [3, 50])
def test_long_documents_are_read_in_stretches_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    of = task(LETTERS)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS[:6]))
    whole = of.evaluate(small(of), [str(path)], CPU, stride=5)
    monkeypatch.setattr(documents, "MAX_CHUNK_CHARACTERS", most)
    monkeypatch.setattr(likelihood, "BUFFERED_WINDOWS", 7)
    parts = of.evaluate(small(of), [str(path)], CPU, stride=5)
    assert parts.nll == pytest.approx(whole.nll, rel=1e-9)
    assert (parts.n_tokens, parts.n_words, parts.n_characters) == (whole.n_tokens, whole.n_words, whole.n_characters)


def test_files_as_documents(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS[:4]))
    of = task(LETTERS, documents="files")
    found = of.evaluate(small(of), [str(path), str(path)], CPU)
    assert found.n_documents == 2
    assert found.n_characters == 2 * len(path.read_text())


def test_windows_that_cannot_be(tmp_path: Path) -> None:
    of = task()
    model = small(of)
    for window in (0, 17):
        with pytest.raises(InputError, match=f"window {window}: expected 1 to 16, the positions of this model"):
            of.evaluate(model, ["x"], CPU, window)
    for stride in (0, 9):
        with pytest.raises(InputError, match=f"stride {stride}: expected 1 to 8, the window"):
            of.evaluate(model, ["x"], CPU, 8, stride)


def test_what_is_unknown_of_all_text_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    of = task(LETTERS)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"the {'☃' * (1 + i % 3)} {i}" for i in range(100)))
    found = of.evaluate(small(of), [str(path)], CPU)
    (message,) = capfd.readouterr().err.splitlines()
    n_unknown = sum(1 + i % 3 for i in range(100)) + sum(len(str(i)) for i in range(100))
    assert message.startswith(f"warning: {n_unknown} of {found.n_tokens - 100:,} tokens are unknown to the vocabulary")
    assert (
        "'☃' '0' '1' '2' '3' ...; one token stands for all of these, so perplexity and bits are lower than" in message
    )
