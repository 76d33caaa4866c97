from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import build, check
from regard.errors import CheckpointError, ConfigError, DataError, InputError
from regard.text.subwords import Word, bytes_to_unicode
from regard.text.tokenizer import EOS, LM_SPECIAL_TOKENS, PAD, SEQ2SEQ_SPECIAL_TOKENS, SOS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, choose_vocabulary_size, min_vocabulary_size, train_tokenizer

SAMPLE_TEXTS = [
    "the cat sat on the mat, and the dog lay down beside the cat.",
    "le chat s'est assis sur le tapis et le chien s'est couché à côté du chat.",
    "in 2024 the cats were 12 years old; in 2025 they were 13!  <eos>",
    "ein Übermaß an schönen Grüßen: 你好，世界。 Привет, мир! 😀😀",
] * 4
KINDS = ("bpe", "unigram")
CONFIGS = {
    "bpe": TokenizerConfig(kind="bpe", vocabulary=360),
    "unigram": TokenizerConfig(kind="unigram", vocabulary=280),
}
TRAINED = {kind: train_tokenizer(SAMPLE_TEXTS, config) for kind, config in CONFIGS.items()}
ODD = [
    "<eos>",
    "<pad>",
    "<sos>",
    "▁",
    "Ġ",
    "\0",
    "\r\n",
    "\x85",
    "\u2028",
    "\u200d",
    "e\u0301",
    "😀",
    "\u3000",
    "\ufeff",
    "\ufffd",
]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TRAINED[request.param]


class TestLossless:
    @pytest.mark.parametrize("kind", KINDS)
    @settings(max_examples=150, deadline=None)
    @given(text=st.lists(st.text(max_size=12) | st.sampled_from([*ODD, " ", "  ", "\n", "the", "12"])).map("".join))
    def test_decoding_inverts_encoding(self, kind: str, text: str) -> None:
        ids = TRAINED[kind].encode(text)
        assert TRAINED[kind].decode(ids) == text
        assert all(index >= len(SEQ2SEQ_SPECIAL_TOKENS) for index in ids)

    @pytest.mark.parametrize(
        "text", ["", " ", "  ", "a", " a", "  a  b  ", "\ta\n", "\n\n", " " * 200, "e" * 200, *ODD]
    )
    def test_spaces_and_unusual_characters(self, tokenizer: Tokenizer, text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_characters_of_every_script(self, tokenizer: Tokenizer) -> None:
        codes = [code for code in range(0, 0x110000, 11) if not 0xD800 <= code <= 0xDFFF]
        blocks = ["".join(map(chr, codes[start : start + 100])) for start in range(0, len(codes), 100)]
        for block, ids in zip(blocks, tokenizer.encode_batch(blocks), strict=True):
            assert tokenizer.decode(ids) == block

    def test_the_empty_text_has_no_ids(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.encode("") == []
        assert tokenizer.decode([]) == ""

    def test_special_tokens_in_a_text_are_text(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode(" ".join(SEQ2SEQ_SPECIAL_TOKENS))
        assert not {PAD, SOS, EOS} & set(ids)

    def test_decoding_skips_special_tokens(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("the cat <eos>")
        assert tokenizer.decode([SOS, *ids, EOS, PAD, PAD]) == "the cat <eos>"

    def test_batch_equals_single_texts(self, tokenizer: Tokenizer) -> None:
        texts = [*SAMPLE_TEXTS, *ODD, ""]
        assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
        assert tokenizer.encode_batch([]) == []

    def test_lone_surrogate_is_refused(self, tokenizer: Tokenizer) -> None:
        with pytest.raises(InputError, match=r"character 3 of a text is half a character \(lone surrogate '\\ud83d'\)"):
            tokenizer.encode_batch(["fine", "ab\ud83d"])
        with pytest.raises(TypeError):
            tokenizer.encode(None)  # type: ignore[arg-type]

    def test_ids_that_end_inside_a_character(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.decode(tokenizer.encode("a 龘")[:-1]).endswith("\ufffd")


class TestDisplayTokens:
    def test_display_tokens_are_readable(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("the cat\n\t\0\x7f\u200d x")
        text = "".join(tokenizer.display_tokens([SOS, *ids, EOS]))
        assert text == "<sos>▁the▁cat␊␉␀<U+007F>" + "<0xE2><0x80><0x8D>" + "▁x<eos>"

    def test_invisible_characters_are_displayed(self) -> None:
        learned = train_tokenizer(["a\u200db \u200d\u200d"] * 9, CONFIGS["bpe"])
        assert "<U+200D>" in "".join(learned.display_tokens(learned.encode("a\u200db")))

    def test_digits_are_tokens_of_their_own(self, tokenizer: Tokenizer) -> None:
        joined = tokenizer.display_tokens(tokenizer.encode("in 2024"))
        assert [token.strip("▁") for token in joined][-4:] == ["2", "0", "2", "4"]

    def test_words_are_separated_by_spaces(self, tokenizer: Tokenizer) -> None:
        ids = [SOS, *tokenizer.encode("s'est assis,  là 😀!"), EOS, PAD]
        words = tokenizer.words(ids)
        assert [word.text for word in words] == ["<sos>", "s'est", "assis,", "là", "😀!", "<eos>", "<pad>"]
        assert [index for word in words for index in word.token_indices] == list(range(len(ids)))

    def test_words_of_unusual_texts(self, tokenizer: Tokenizer) -> None:
        def texts(text: str) -> list[str]:
            return [word.text for word in tokenizer.words(tokenizer.encode(text))]

        assert texts("") == []
        assert texts("a b ") == ["a", "b", "▁"]
        assert texts("  a\n\nb\tc") == ["a", "b", "c"]
        assert texts("你好，世界") == ["你好，世界"]

    def test_words_of_a_part_of_a_text(self, tokenizer: Tokenizer) -> None:
        broken = tokenizer.encode("🦊")[:-1]
        assert tokenizer.words(broken) == [Word("<0xF0><0x9F><0xA6>", tuple(range(len(broken))))]
        assert tokenizer.words([EOS]) == [Word("<eos>", (0,))]

    def test_byte_alphabet_equals_the_library_s(self) -> None:
        assert set(bytes_to_unicode()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


class TestTraining:
    def test_special_tokens_and_bytes_come_first(self) -> None:
        assert (PAD, SOS, EOS) == (0, 1, 2)
        for kind, learned in TRAINED.items():
            assert learned.display_tokens([PAD, SOS, EOS]) == list(SEQ2SEQ_SPECIAL_TOKENS)
            assert len(learned) == CONFIGS[kind].vocabulary

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_text_gives_the_same_file(self, kind: str) -> None:
        """Also in other processes: the library seeds its hashes anew in each."""
        code = (
            "import json, sys; from regard.text.tokenizer_training import *; kind, size, texts = json.load(sys.stdin);"
            "print(train_tokenizer(texts, TokenizerConfig(kind=kind, vocabulary=size)).fingerprint)"
        )
        again = [train_tokenizer(iter(SAMPLE_TEXTS), CONFIGS[kind]).to_json() for _ in range(5)]
        assert set(again) == {TRAINED[kind].to_json()}
        given = json.dumps([kind, CONFIGS[kind].vocabulary, SAMPLE_TEXTS])
        run = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == TRAINED[kind].fingerprint

    def test_another_text_has_another_fingerprint(self) -> None:
        other = train_tokenizer([*SAMPLE_TEXTS, "zebra zebra zebra zebra zebra zebra"], CONFIGS["bpe"])
        assert other.fingerprint != TRAINED["bpe"].fingerprint

    @pytest.mark.parametrize("kind", KINDS)
    def test_vocabulary_larger_than_the_text_gives(self, kind: str) -> None:
        config = replace(CONFIGS[kind], vocabulary=50_000)
        most = len(train_tokenizer(SAMPLE_TEXTS, config))
        assert min_vocabulary_size() < most < 50_000
        for size in (most, most - 1, min_vocabulary_size()):
            assert len(train_tokenizer(SAMPLE_TEXTS, replace(config, vocabulary=size))) == size

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("texts", [[], [""], ["a"], ["\n"], ["你"]])
    def test_very_little_text(self, kind: str, texts: list[str]) -> None:
        learned = train_tokenizer(texts, replace(CONFIGS[kind], vocabulary=512))
        assert len(learned) >= min_vocabulary_size()
        assert learned.decode(learned.encode("quite another text")) == "quite another text"

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("line", ["a", "ab ", " ", "你好", "=-", "\n", "e\u0301"])
    def test_a_line_of_100_000_characters(self, kind: str, line: str) -> None:
        text = (line * 100_000)[:100_000]
        learned = train_tokenizer([*SAMPLE_TEXTS, text], CONFIGS[kind])
        assert learned.decode(learned.encode(text)) == text

    def test_the_smallest_vocabulary(self) -> None:
        with pytest.raises(ConfigError, match=r"vocabulary = 258; the least is 259: 256 bytes and 3 special tokens"):
            train_tokenizer(SAMPLE_TEXTS, TokenizerConfig(vocabulary=min_vocabulary_size() - 1))
        with pytest.raises(ConfigError, match=r"vocabulary = 256; the least is 257: 256 bytes and 1 special token$"):
            train_tokenizer(SAMPLE_TEXTS, TokenizerConfig(vocabulary=256), LM_SPECIAL_TOKENS)
        assert len(train_tokenizer(["1 2"], TokenizerConfig(vocabulary=257), LM_SPECIAL_TOKENS)) == 257

    def test_the_config_is_a_recipe_table(self) -> None:
        table = check({"tokenizer": {"vocabulary": 300, "kind": "unigram"}}, {"tokenizer": TokenizerConfig}, "x.toml")
        assert build(TokenizerConfig, table["tokenizer"]) == TokenizerConfig(vocabulary=300, kind="unigram", joint=True)

    def test_errors_while_reading_pass_through(self) -> None:
        def texts() -> object:
            yield "fine"
            raise DataError("x.en", "damaged", 2)

        with pytest.raises(DataError, match=r"^x\.en:2: damaged$"):
            train_tokenizer(texts(), CONFIGS["bpe"])  # type: ignore[arg-type]

    def test_lone_surrogate_is_refused(self) -> None:
        with pytest.raises(InputError, match="half a character"):
            train_tokenizer(["fine", "\ud800"], CONFIGS["bpe"])

    def test_no_progress_bar_without_a_terminal(self, capfd: pytest.CaptureFixture[str]) -> None:
        train_tokenizer(SAMPLE_TEXTS * 500, CONFIGS["bpe"])
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("n_words", "size"),
        [(0, 512), (1_000, 512), (10_000, 1_024), (700_000, 8_384), (10**7, 31_616), (10**9, 32_000)],
    )
    def test_the_vocabulary_grows_with_the_text(self, n_words: int, size: int) -> None:
        assert choose_vocabulary_size(n_words) == size


class TestFiles:
    def test_a_saved_tokenizer_is_the_same(self, tokenizer: Tokenizer, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        tokenizer.save(path)
        loaded = Tokenizer.load(path)
        assert path.read_text() == tokenizer.to_json() == loaded.to_json()
        assert loaded.fingerprint == tokenizer.fingerprint
        assert list(tmp_path.iterdir()) == [path]
        for text in [*SAMPLE_TEXTS, *ODD, "  ", ""]:
            assert loaded.encode(text) == tokenizer.encode(text)
            assert loaded.decode(loaded.encode(text)) == text

    def test_transformers_reads_it(self, tokenizer: Tokenizer, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        tokenizer.save(path)
        other = tokenizers.Tokenizer.from_file(str(path))
        for text in SAMPLE_TEXTS:
            plain = text.replace("<eos>", "")
            assert other.encode(plain).ids == tokenizer.encode(plain)
            assert other.decode(other.encode(plain).ids) == plain

    def test_a_tokenizer_that_is_missing_damaged_or_foreign(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such tokenizer"):
            Tokenizer.load(path)
        whole = TRAINED["bpe"].to_json()
        for damaged in (whole[: len(whole) // 2].encode(), b"", b"{}", b"\0", b"[]", b"\xff"):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=r"damaged, or not|expected an object"):
                Tokenizer.load(path)
        path.unlink()
        path.mkdir()
        with pytest.raises(CheckpointError, match="not a file"):
            Tokenizer.load(path)

    def test_a_foreign_tokenizer(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        words = (*SEQ2SEQ_SPECIAL_TOKENS, "word")
        for missing, role in (("<pad>", "pad"), ("<eos>", "end")):
            fewer = {name: index for index, name in enumerate(name for name in words if name != missing)}
            tokenizers.Tokenizer(tokenizers.models.WordLevel(fewer, unk_token="word")).save(str(path))
            with pytest.raises(CheckpointError, match=f"no token for '{role}'; it would be {missing} or "):
                TokenizerPair.load(tmp_path, is_joint=True)

    def test_the_file_is_json_without_machine_paths(self, tokenizer: Tokenizer) -> None:
        assert json.loads(tokenizer.to_json())["model"]["type"] in ("BPE", "Unigram")

    def test_one_file_when_joint_two_when_not(self, tmp_path: Path) -> None:
        one, other = TRAINED["bpe"], TRAINED["unigram"]
        TokenizerPair(one, other).save(tmp_path)
        separate = TokenizerPair.load(tmp_path, is_joint=False)
        assert not separate.is_joint
        assert (separate.source.fingerprint, separate.target.fingerprint) == (one.fingerprint, other.fingerprint)

        TokenizerPair(one, one).save(tmp_path)
        joint = TokenizerPair.load(tmp_path, is_joint=True)
        assert joint.is_joint
        assert joint.source is joint.target
        assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
