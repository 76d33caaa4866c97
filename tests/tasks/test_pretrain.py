"""Pre-training: what is masked, what is paired, and that the loss is that of the plain definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import CPU, documents, sentences, small, vocabulary
from saved_runs import kept
from tiny_runs import contents, merged, ready, trained
from torch.testing import assert_close

from regard.data import corpus
from regard.data.batches import EncoderBatch
from regard.data.corpus import write_store
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.nn import IGNORE
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.mask_filling import compute_masked_lm_logits
from regard.tasks.pretrain import PretrainConfig, PretrainingTask
from regard.tasks.shared.next_sentence_prediction import (
    SentencePair,
    pair_adjacent_blocks,
    sample_next_sentence_pairs,
    split_into_blocks,
)
from regard.text.special_tokens import EncodedInput
from regard.training import pretrained as start
from regard.training.loop import Trainer

VOCABULARY = vocabulary()


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def task(**settings: object) -> PretrainingTask:
    return PretrainingTask(PretrainConfig(**{"length": 32, **settings}), VOCABULARY)  # type: ignore[arg-type]


def store_of(task: PretrainingTask, folder: Path, n: int = 30) -> TokenStore:
    examples = [(document,) for document in documents(n)]
    return write_store(folder / "store", examples, task, fingerprint="")


def batch_of(task: PretrainingTask, folder: Path, rows: int = 8, width: int = 64) -> EncoderBatch:
    store = store_of(task, folder)
    order = PackedOrder(task.example_lengths(store), [width], rows, seed=0)
    return task.make_batch(store, next(order.iterate_epoch()))


class TestWhatIsRead:
    @pytest.mark.parametrize("objective", ["masked", "masked+next"])
    def test_no_token_of_a_document_is_lost(self, objective: str) -> None:
        """However they are cut and paired, the tokens of all inputs are those of all documents."""
        one = task(objective=objective)
        texts, boundaries, is_random_next = one.encode([(document,) for document in documents(40)])
        specials = VOCABULARY.special_ids
        read = Counter(index for ids in texts for index in ids if index not in specials)
        lines = [line for document in documents(40) for line in document.split("\n")]
        assert read == Counter(index for ids in VOCABULARY.encode_batch(lines) for index in ids)
        assert max(map(len, texts)) <= 32
        assert len(texts) == len(boundaries) == len(is_random_next)

    def test_inputs_stand_between_their_special_tokens(self) -> None:
        one = task()
        texts, boundaries, _ = one.encode([(document,) for document in documents(10)])
        cls_id, sep_id = VOCABULARY.special_id("cls"), VOCABULARY.special_id("sep")
        for ids, boundary in zip(texts, boundaries, strict=True):
            assert ids[0] == cls_id
            assert [i for i, token in enumerate(ids) if token == sep_id] == [boundary - 1, len(ids) - 1]

    def test_half_of_the_pairs_are_from_elsewhere(self) -> None:
        drawn = [[SentencePair([d, i, 0], [d, i, 1]) for i in range(4)] for d in range(50)]
        found = sample_next_sentence_pairs(drawn, rng(1))
        assert sum(not pair.is_next for pair in found) == 100
        for pair in found:
            assert (pair.first[:2] == pair.second[:2]) == pair.is_next
            assert (pair.first[0] == pair.second[0]) == pair.is_next
        assert sorted(tuple(pair.second) for pair in found) == sorted(tuple(p.second) for d in drawn for p in d)
        assert found == sample_next_sentence_pairs(drawn, rng(1))
        assert found != sample_next_sentence_pairs(drawn, rng(2))

    @pytest.mark.parametrize(
        ("sizes", "most"), [([1], 0), ([9, 1], 2), ([5, 1, 1], 3), ([0, 3], 0), ([2, 2], 2), ([30, 3, 2], 10)]
    )
    def test_one_large_document_keeps_what_no_other_can_take(self, sizes: list[int], most: int) -> None:
        """Over some seeds, as many pairs are from elsewhere as the smaller documents can give and take."""
        drawn = [[SentencePair([d, i], [d, i]) for i in range(n)] for d, n in enumerate(sizes)]
        counts = []
        for seed in range(200):
            pairs = sample_next_sentence_pairs(drawn, rng(seed))
            assert [pair.first for pair in pairs] == [pair.first for document in drawn for pair in document]
            assert [pair.first[0] == pair.second[0] for pair in pairs] == [pair.is_next for pair in pairs]
            counts.append(sum(not pair.is_next for pair in pairs))
        assert max(counts) == most

    def test_blocks_and_pairs(self) -> None:
        assert [*map(list, split_into_blocks([[1, 2, 3], [4], [5, 6]], 4))] == [[1, 2, 3, 4], [5, 6]]
        pair, cut = pair_adjacent_blocks([[1], [2], [3, 4, 5]], rng(0))
        assert pair == SentencePair([1], [2])
        assert [*cut.first, *cut.second] == [3, 4, 5]
        assert pair_adjacent_blocks([[1, 2], [3, 4], [5]], rng(0)) == [
            SentencePair([1, 2], [3]),
            SentencePair([4], [5]),
        ]
        assert pair_adjacent_blocks([[1]], rng(0)) == []

    def test_lengths_do_not_tell_what_is_from_elsewhere(self) -> None:
        """For each pair of lengths as many of one kind as of the other, but for what chance leaves."""
        documents = [[list(range(1, 2 + number % 57))] for number in range(4000)]
        pairs = sample_next_sentence_pairs(
            [pair_adjacent_blocks(blocks, rng(n)) for n, blocks in enumerate(documents)], rng(0)
        )
        assert sum(pair.is_next for pair in pairs) / len(pairs) == pytest.approx(0.5, abs=0.02)
        guess = [abs(len(pair.first) - len(pair.second)) <= 1 for pair in pairs]
        right = sum(each == pair.is_next for each, pair in zip(guess, pairs, strict=True)) / len(pairs)
        assert right == pytest.approx(0.5, abs=0.03)

    def test_a_text_without_documents_is_warned_of_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In as many parts as it is encoded, the warning counts all of them."""
        monkeypatch.setattr(corpus, "ENCODING_CHUNK_SIZE", 1)
        one, examples = task(), [("\n".join(sentences(20 * n)),) for n in (1, 2, 3)]
        store = write_store(tmp_path / "store", examples, one, fingerprint="")
        assert capsys.readouterr().err == ""
        one.warn_about_encoded_data(store)
        (warning,) = capsys.readouterr().err.splitlines()
        assert warning.startswith(f"warning: only 0% of {len(store)} pairs could be given a second block from another")
        assert warning.endswith(
            "put blank lines between documents or give more of them, or pass --set task.objective=masked"
        )
        task(objective="masked").warn_about_encoded_data(store)
        assert capsys.readouterr().err == ""

    def test_a_text_without_documents_is_warned_of_where_it_is_evaluated(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "text.txt").write_text("\n".join(sentences(30)))
        one = task()
        one.evaluate(small(one), [str(tmp_path / "text.txt")], CPU)
        stderr = capsys.readouterr().err
        assert stderr.startswith("warning: only 0% of ")
        assert stderr.endswith("or give more of them; without any, next sentences are not scored\n")


class TestWhatIsMasked:
    def test_shares(self, tmp_path: Path) -> None:
        """15 % of the tokens; of these 80 % masks, 10 % others, 10 % themselves; specials and gaps never."""
        one, batch = task(), batch_of(task(), tmp_path)
        rows = batch.rows
        real = (rows.segment > 0) & ~torch.isin(rows.ids, torch.tensor(sorted(VOCABULARY.special_ids)))
        masks = changed = stayed = total = 0
        for seed in range(60):
            torch.manual_seed(seed)
            chosen = one.masker.mask_tokens(rows)
            positions = chosen.positions[chosen.labels != IGNORE]
            assert len(positions) == len(set(positions.tolist())) == batch.n_tokens == int(real.sum() * 150 // 1000)
            assert real.flatten()[positions].all()
            original, replaced = rows.ids.flatten()[positions], chosen.input_ids.flatten()[positions]
            assert torch.equal(chosen.labels[chosen.labels != IGNORE], original.long())
            others = torch.ones_like(rows.ids.flatten(), dtype=torch.bool)
            others[positions] = False
            assert torch.equal(chosen.input_ids.flatten()[others], rows.ids.flatten()[others])
            masks += int((replaced == VOCABULARY.special_id("mask")).sum())
            stayed += int((replaced == original).sum())
            total += len(positions)
        changed = total - masks - stayed
        assert masks / total == pytest.approx(0.8, abs=0.02)
        assert changed / total == pytest.approx(0.1, abs=0.02)

    def test_every_token_is_as_likely_as_any_other(self, tmp_path: Path) -> None:
        one, batch = task(), batch_of(task(), tmp_path)
        torch.manual_seed(0)
        counts = torch.zeros(batch.rows.ids.numel())
        for _ in range(400):
            chosen = one.masker.mask_tokens(batch.rows)
            counts[chosen.positions[chosen.labels != IGNORE]] += 1
        drawn = counts[counts > 0]
        assert float(drawn.mean()) == pytest.approx(60, rel=0.02)
        assert float(drawn.std()) == pytest.approx(math.sqrt(60 * 0.85), rel=0.25)


class TestLoss:
    @pytest.mark.parametrize("objective", ["masked", "masked+next"])
    def test_it_is_the_plain_definition(self, objective: str, tmp_path: Path) -> None:
        one = task(objective=objective)
        batch, model = batch_of(one, tmp_path), small(one).double()
        torch.manual_seed(3)
        loss = one.compute_loss(model, batch)
        torch.manual_seed(3)
        chosen = one.masker.mask_tokens(batch.rows)
        hidden = model(replace(batch.rows, ids=chosen.input_ids))
        logits = compute_masked_lm_logits(model, hidden).flatten(0, 1).log_softmax(-1)
        kept = chosen.labels != IGNORE
        nll = -logits[chosen.positions[kept], chosen.labels[kept]].sum()
        assert_close(loss.nll, nll)
        assert int(loss.n_tokens) == batch.n_tokens
        expected = nll
        if objective == "masked+next":
            pooler = model.heads["pooler"]
            losses = []
            for row, column in zip(*torch.where((batch.rows.position == 0) & (batch.rows.segment > 0)), strict=True):
                vector = torch.tanh(pooler.dense(hidden[row, column]))
                label = batch.labels[row, batch.rows.segment[row, column] - 1]
                losses.append(-model.heads["next"](vector).log_softmax(-1)[label])
            expected = nll + torch.stack(losses).mean() * batch.n_tokens
        assert_close(loss.total, expected)

    def test_neighbours_in_a_row_change_nothing(self, tmp_path: Path) -> None:
        """A text alone has the vectors it has in a packed row."""
        one = task()
        model, rows = small(one), batch_of(one, tmp_path).rows
        assert int((rows.segment.amax(1) > 1).sum()) > 4
        batched, n_checked = model(rows), 0
        for row in range(len(rows.ids)):
            for number in range(1, int(rows.segment[row].amax()) + 1):
                own = rows.segment[row] == number
                ids, boundary = rows.ids[row, own].tolist(), int((rows.token_type_ids[row, own] == 0).sum())
                alone = model(inputs_to_rows([EncodedInput(ids, boundary, 1, boundary)], one.template.pad_id))[0]
                assert_close(batched[row, own], alone, rtol=1e-4, atol=1e-5)
                n_checked += 1
        assert n_checked > 8


class TestEvaluation:
    def file(self, folder: Path, n: int) -> list[str]:
        path = folder / "text.txt"
        path.write_text("\n\n".join(documents(n)) if n > 1 else "\n".join(sentences(40)))
        return [str(path)]

    def test_it_draws_the_same_and_leaves_the_generator_of_others_alone(self, tmp_path: Path) -> None:
        one, files = task(), self.file(tmp_path, 20)
        model = small(one)
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = one.evaluate(model, files, CPU)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(6)
        assert one.evaluate(model, files, CPU) == first

    def test_next_sentences_of_one_kind_say_nothing(self, tmp_path: Path) -> None:
        one = task()
        model = small(one)
        assert "next_accuracy" in one.evaluate(model, self.file(tmp_path, 20), CPU)
        assert "next_accuracy" not in one.evaluate(model, self.file(tmp_path, 1), CPU)

    def test_no_input_is_longer_than_the_positions(self, tmp_path: Path) -> None:
        one = task(length=64)
        assert one.evaluate(small(one, n_positions=20), self.file(tmp_path, 20), CPU)["n"] > 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 8}, "task.length = 8; expected at least 16 and at most 32,767"),
        ({"masked": 0.0}, "task.masked = 0.0; expected at least 0.01 and at most 0.9"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**settings)


RECIPE = {
    "task": {"name": "pretrain", "length": 32},
    "tokenizer": {"vocabulary": 41},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 300, "batch_tokens": 1024, "learning_rate": 1e-2, "warmup": 30, "validate_every": 150},
}


def test_it_learns_what_follows_what(tmp_path: Path) -> None:
    """Sentences that count from a word on: a masked word is known from its neighbours."""
    order = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    texts = [" ".join(order[(start + i) % 10] for i in range(12)) for start in range(10)]
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join("\n".join(texts[(d + i) % 10] for i in range(3)) for d in range(60)))
    data = {"train": [str(file)], "valid": [str(file)]}
    events = trained(merged(RECIPE, {"data": data, "task": {"objective": "masked"}}), tmp_path / "run")
    last = [event for event in events if event.kind == "valid"][-1].values
    assert last["masked_accuracy"] > 0.4  # one in ten by chance
    assert last["valid_perplexity"] < 7


def test_it_learns_what_belongs_together(tmp_path: Path) -> None:
    """Documents of one word each: a second text of another word is from elsewhere."""
    file = tmp_path / "text.txt"
    words = ["cat", "dog", "hen", "cow"]
    file.write_text("\n\n".join("\n".join([" ".join([words[i % 4]] * 6)] * 4) for i in range(120)))
    changes = {"task": {"length": 16}, "train": {"steps": 150, "batch_tokens": 512}}
    tables = merged(RECIPE, {"data": {"train": [str(file)], "valid": [str(file)]}}, changes)
    events = trained({**tables, "tokenizer": {}}, tmp_path / "run")
    last = [event for event in events if event.kind == "valid"][-1].values
    assert last["next_accuracy"] > 0.85  # one in two by chance, or by one of the texts


@pytest.mark.parametrize(
    ("given", "n_positions"), [({"data": {"max_length": 24}}, 24), ({"model": {"n_positions": 20}}, 20)]
)
def test_blocks_are_as_short_as_rows_and_positions(
    given: dict[str, dict[str, int]], n_positions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(documents(40)))
    data = {"data": {"train": [str(file)], "valid": [str(file)]}, "tokenizer": {"vocabulary": 50}}
    prepared = ready(merged(RECIPE, data, given), tmp_path / "run")
    assert prepared.train_store["text"].lengths.max() <= n_positions
    assert prepared.train_order.items is None  # all of the store
    assert "left out" not in capsys.readouterr().err


def test_last_lines_are_held_out_of_a_single_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = sentences(100)
    (tmp_path / "text.txt").write_text("\n".join(lines))
    data = {
        "data": {"train": [str(tmp_path / "text.txt")]},
        "task": {"objective": "masked"},
        "tokenizer": {"vocabulary": 50},
    }
    prepared = ready(merged(RECIPE, data), tmp_path / "run")
    unit = "documents (with blank lines between them)"
    held_out = "the last 5 of 100 lines are held out for validation; pass --valid with files to choose others"
    assert f"warning: {unit}: only 1; {held_out}\n" in capsys.readouterr().err
    for store, expected in ((prepared.train_store, lines[:-5]), (prepared.valid_store, lines[-5:])):
        texts = [prepared.task.example_text(store, item) for item in range(len(store))]
        assert "".join("".join(texts).replace("##", "").split()) == "".join("".join(expected).split())


def test_document_of_few_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences(19)))
    with pytest.raises(ConfigError, match=r"only 1, too few to hold some out for validation; pass --valid with files$"):
        ready(merged(RECIPE, {"data": {"train": [str(tmp_path / "text.txt")]}, "tokenizer": {}}), tmp_path / "run")


def test_columns_of_plain_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(40)))
    tables = merged(RECIPE, {"data": {"train": [str(tmp_path / "text.txt")], "columns": ["text"]}})
    with pytest.raises(ConfigError, match="columns: text: plain text is read here, which has none; leave them out"):
        ready(tables, tmp_path / "run")


def test_a_vocabulary_too_small_for_the_letters(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(40)))
    tables = merged(RECIPE, {"data": {"train": [str(tmp_path / "text.txt")]}, "tokenizer": {"vocabulary": 40}})
    with pytest.raises(
        ConfigError, match="40 requested, but the characters of this text alone are 45 tokens; ask for at "
    ):
        trained(tables, tmp_path / "run")


@pytest.mark.parametrize("events", [1, 5])
def test_left_and_taken_up_it_ends_as_if_never_left(tmp_path: Path, events: int) -> None:
    """The masks of every step too; and a model that another one starts from stays what it was."""
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(documents(40)))
    train = {"steps": 8, "validate_every": 4, "save_every": 2, "log_every": 1, "batch_tokens": 256}
    tables = merged(RECIPE, {"data": {"train": [str(file)]}, "train": train, "tokenizer": {"vocabulary": 50}})
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(events):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"{text}\t{len(text) % 2}\n" for text in sentences(60)))
    tuned = {"task": {"name": "classify"}, "model": {"start": str(tmp_path / "whole")}, "data": {"train": [str(rows)]}}
    tuned["train"] = {**train, "learning_rate": 1e-3, "warmup": 2}
    trained(tuned, tmp_path / "tuned")
    run = Trainer(ready(tuned, tmp_path / "cut")).train()
    for _ in range(events):
        next(run)
    run.close()
    trained(tuned, tmp_path / "cut", resume=True)
    assert contents(tmp_path / "cut") == contents(tmp_path / "tuned")


def test_the_model_that_training_starts_from_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, read = task(), []
    path = kept(one, small(one), tmp_path / "bert")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"{text}\t{len(text) % 2}\n" for text in sentences(60)))
    plain = start.open_model
    monkeypatch.setattr(start, "open_model", lambda path: read.append(path) or plain(path))
    tuned = {"task": {"name": "classify"}, "model": {"start": str(path)}, "data": {"train": [str(rows)]}}
    train = {"train": {"batch_tokens": 256, "steps": 2, "validate_every": 1}}
    ready(merged(tuned, train), tmp_path / "run")
    assert len(read) == 1
    ready(merged(tuned, train), tmp_path / "run", resume=True)
    assert len(read) == 2  # no checkpoint is there yet, so the weights are needed again
    trained(merged(tuned, train), tmp_path / "run", resume=True)
    ready(merged(tuned, train), tmp_path / "run", resume=True)
    assert len(read) == 3


def test_arrays_of_labels_have_a_place_for_every_text(tmp_path: Path) -> None:
    batch = batch_of(task(), tmp_path)
    n_texts = int(batch.rows.segment.amax(1).sum())
    assert int((batch.labels != IGNORE).sum()) == n_texts
    assert batch.n_input_tokens == int((batch.rows.segment > 0).sum())
    assert np.isin(batch.labels.numpy(), (0, 1, IGNORE)).all()
