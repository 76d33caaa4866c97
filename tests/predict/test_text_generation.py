"""Text generation: what is written is what the model says, whatever is generated beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoders import CPU
from language_models import BYTES, LETTERS, small, task
from torch.testing import assert_close

from regard.data.batches import sentences_to_rows
from regard.errors import InputError
from regard.generate import GenerationConfig, generation_loop
from regard.models.config import apply_preset
from regard.models.recurrent.config import RecurrentLMConfig
from regard.text.documents import DocumentChunk

END = BYTES.special_id("end")


class TestWhatIsWritten:
    @torch.no_grad()
    def test_greedy_is_the_likeliest_token_each_time(self) -> None:
        of = task()
        model = small(of, n_positions=64)
        never = list(BYTES.special_ids - {END})
        for text in ("the cat", "", "a dog\nruns on"):
            ids = [of.start_id, *BYTES.encode(text)]
            (found,), *_ = of.make_predictor(model, CPU).generate(
                [text], GenerationConfig(temperature=0.0, max_tokens=12)
            )
            for token, score in zip(found.ids, found.token_scores, strict=True):
                log_probs = model(sentences_to_rows([ids], pad_id=0))[0, -1].log_softmax(-1)
                assert float(log_probs[token]) == pytest.approx(score, abs=1e-5)
                log_probs[never] = -torch.inf
                assert token == int(log_probs.argmax())
                ids.append(token)
            assert found.score == pytest.approx(sum(found.token_scores))
            assert found.tokens == BYTES.display_tokens(found.ids)

    def test_several_prompts_are_each_by_itself(self) -> None:
        of = task()
        model, manner = small(of), GenerationConfig(max_tokens=30, n=2, seed=4, batch=3)
        texts = ["the cat", "a", "the red dog runs on the slow mat in tokyo", ""]
        batched = of.make_predictor(model, CPU).generate(texts, manner)
        assert [len(each) for each in batched] == [2] * 4
        one_by_one = of.make_predictor(model, CPU).generate_batches([[text] for text in texts], manner)
        for number, (text, alone) in enumerate(one_by_one):
            assert text == texts[number]
            assert [each.ids for each in alone] == [each.ids for each in batched[number]]
            assert_close([e.token_scores for e in alone], [e.token_scores for e in batched[number]])
        assert batched[0][0].ids != batched[0][1].ids

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_a_step_ahead_changes_nothing(self, monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
        """As a GPU takes it, over the end of the positions too."""
        of = task()
        model = small(of, n_positions=16)
        manner, texts = (
            GenerationConfig(max_tokens=40, temperature=temperature, stop=("e",)),
            ["the cat", "a", "the red dog", ""],
        )
        plain = of.make_predictor(model, CPU).generate(texts, manner)
        monkeypatch.setattr(generation_loop, "_runs_asynchronously", lambda x: True)
        assert of.make_predictor(model, CPU).generate(texts, manner) == plain
        assert len({len(each.ids) for (each,) in plain}) > 1

    def test_the_seed_decides(self) -> None:
        of = task()
        model = small(of)
        one, again, other = (
            of.make_predictor(model, CPU).generate(["the"], GenerationConfig(max_tokens=20, seed=seed))[0][0]
            for seed in (1, 1, 2)
        )
        assert one == again
        assert one.ids != other.ids

    def test_a_stream_is_the_text(self) -> None:
        for tokenizer in (BYTES, LETTERS):
            of = task(tokenizer)
            model = small(of)
            for seed, stop in enumerate(((), ("a",), ("th", " r"))):
                manner = GenerationConfig(max_tokens=25, seed=seed, stop=stop)
                chunks = list(of.make_predictor(model, CPU).stream("the cat", manner))
                ((whole,),) = of.make_predictor(model, CPU).generate(["the cat"], manner)
                assert "".join(chunks) == whole.text
                assert all(chunks)

    def test_why_a_text_ended(self) -> None:
        of = task(LETTERS)
        model = small(of)
        manner = GenerationConfig(max_tokens=60, n=40, seed=1, stop=("e",))
        ((*found,),) = of.make_predictor(model, CPU).generate(["the"], manner)
        assert {each.ended for each in found} == {"end", "stop"}
        for each in found:
            assert (each.ids[-1] == of.end_id) == (each.ended == "end")
            assert "e" not in each.text
            written = LETTERS.decode(each.ids)
            assert written == (each.text + "e" if each.ended == "stop" else each.text)
        short = of.make_predictor(model, CPU).generate(["the"], GenerationConfig(max_tokens=1, seed=0))[0][0]
        assert (short.ended, len(short.ids)) == ("length", 1)

    @torch.no_grad()
    def test_repetition_is_penalised_as_it_is_defined(self) -> None:
        of = task()
        model = small(of, n_positions=64)
        manner = GenerationConfig(temperature=0.0, max_tokens=15, repetition_penalty=1.7)
        ids = [of.start_id, *BYTES.encode("the cat")]
        ((found,),) = of.make_predictor(model, CPU).generate(["the cat"], manner)
        for token in found.ids:
            logits = model(sentences_to_rows([ids], pad_id=0))[0, -1].clone()
            for seen in set(ids):
                logits[seen] = logits[seen] / 1.7 if logits[seen] > 0 else logits[seen] * 1.7
            logits[list(BYTES.special_ids - {END})] = -torch.inf
            assert token == int(logits.argmax())
            ids.append(token)
        assert (
            found.ids
            != of.make_predictor(model, CPU)
            .generate(["the cat"], GenerationConfig(temperature=0.0, max_tokens=15))[0][0]
            .ids
        )

    def test_special_tokens_are_never_written(self) -> None:
        of = task(LETTERS)
        unknown = LETTERS.special_id("unknown")
        model = small(of)
        with torch.no_grad():
            model.softmax_embedding.weight[unknown] *= 30
        ((*found,),) = of.make_predictor(model, CPU).generate(["the"], GenerationConfig(max_tokens=30, n=10))
        assert not any(unknown in each.ids for each in found)

    @pytest.mark.parametrize("options", [{"temperature": 0.0}, {}, {"top_k": 3, "top_p": 0.5}], ids=str)
    @pytest.mark.parametrize("damaged", [slice(3, 4), slice(None)], ids=["one row", "all"])
    def test_scores_that_are_no_numbers(self, options: dict[str, Any], damaged: slice) -> None:
        of = task()
        model = small(of)
        with torch.no_grad():
            model.softmax_embedding.weight[damaged] = torch.nan
        with pytest.raises(InputError, match="the model's scores are not numbers; its weights are damaged"):
            of.make_predictor(model, CPU).generate(["the"], GenerationConfig(**options))
        with pytest.raises(InputError, match="the model's scores are not numbers; its weights are damaged"):
            list(of.make_predictor(model, CPU).stream("the", GenerationConfig(**options)))

    def test_continuations_are_yielded_batch_by_batch(self) -> None:
        """The first of a billion comes after one batch; all of them would never."""
        of = task()
        predictor = of.make_predictor(small(of), CPU)
        each = predictor.generate_each([["the", "a"]], GenerationConfig(n=10**9, batch=3, max_tokens=2))
        first = [next(each) for _ in range(7)]
        assert [text for text, _ in first] == ["the"] * 7
        whole = predictor.generate(["the", "a"], GenerationConfig(n=7, batch=5, max_tokens=2))[0]
        assert [continuation.ids for _, continuation in first] == [continuation.ids for continuation in whole]

    def test_prompts_that_are_not_seen_whole_are_counted_once(self, capfd: pytest.CaptureFixture[str]) -> None:
        """However many are written at once; a recurrent model sees all of them."""
        of = task(LETTERS)
        windows, manner = (
            [["a", "the cat sits on the mat"], ["the cat sits on the ☃", "the"]],
            GenerationConfig(max_tokens=1),
        )
        for _ in of.make_predictor(small(of), CPU).generate_batches(windows, manner):
            pass
        unknown, long = capfd.readouterr().err.splitlines()
        assert unknown.startswith("warning: 1 of 48 tokens are unknown to the vocabulary")
        assert long == (
            "warning: 2 of 4 prompts have more tokens than the model sees at once; it reads the last 16 of them"
        )
        recurrent = of.build_model(
            RecurrentLMConfig(**apply_preset({"preset": "tiny", "n_positions": 16}, RecurrentLMConfig))
        )
        of.make_predictor(recurrent.eval(), CPU).generate(windows[0], manner)
        assert capfd.readouterr().err == ""
        for _ in of.make_predictor(small(of), CPU).stream(windows[0][1], manner):
            pass
        assert capfd.readouterr().err.startswith("warning: the prompt has more tokens")

    def test_a_prompt_begins_a_document_unless_it_is_bare(self) -> None:
        assert task().document_tokenizer.make_prompt_ids([5, 6]) == [END, 5, 6]
        assert task(prompts="bare").document_tokenizer.make_prompt_ids([5, 6]) == [5, 6]
        assert task(prompts="bare").document_tokenizer.make_prompt_ids([]) == [END]

    def test_tokens_of_vocabularies_from_elsewhere(self) -> None:
        of = task(start=BYTES.id_to_token(270), end=BYTES.id_to_token(280))
        assert of.document_tokenizer.encode_chunks([DocumentChunk("a")])[0] == [270, *BYTES.encode("a"), 280]
        assert of.document_tokenizer.make_prompt_ids([5]) == [270, 5]
