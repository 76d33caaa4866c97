"""Speed of sentence embeddings in sentences per second, beside other engines for encoders.

    python bench/embed.py DIR                        a Hugging Face directory such as all-MiniLM-L6-v2
    python bench/embed.py DIR --file texts.txt --sentences 512 --rounds 7

On the CPU; regard, CTranslate2 and ONNX Runtime in float32 and int8, the others in float32. Every contender gets the
same texts in random order, tokenizes them, and returns unit vectors in that order. "in order" embeds batches of 32 in
the given order; the others sort by length. Rounds are interleaved, the median is printed, with the smallest cosine
similarity to transformers. Peers that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import os
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import numpy as np
import torch

import regard
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS

BATCH_SIZE = 32
Embedder = Callable[[Sequence[str]], np.ndarray]


def sample_texts(directory: str, count: int) -> list[str]:
    """Return texts of random words of the vocabulary with lengths of sentences: median 12 words, a few over 60.

    None exceeds the maximum length of the peers, which truncate longer texts, where regard embeds all of them.
    """
    tokenizer = regard.load(directory, device="cpu").task.tokenizer
    words = [token for token in map(tokenizer.id_to_token, range(len(tokenizer))) if token.isalpha()]
    rng = random.Random(0)
    return [" ".join(rng.choices(words, k=min(120, 3 + int(rng.lognormvariate(2.2, 0.9))))) for _ in range(count)]


def read_texts(path: str, count: int) -> list[str]:
    """Return the lines of a file in random order."""
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    random.Random(0).shuffle(lines)
    return lines[:count]


def build_regard_embedder(directory: str, precision: str = "float32") -> Embedder:
    model = regard.load(directory, device="cpu", precision=precision)
    return lambda texts: model.embed(texts, pooling="mean", normalised=True)


def embed_in_batches(texts: Sequence[str], d_model: int, sort_by_length: bool, embed_batch: Embedder) -> np.ndarray:
    """Embed texts in batches, in the given order or sorted by length; vectors are in the given order."""
    order = list(range(len(texts)))
    if sort_by_length:
        order.sort(key=lambda index: -len(texts[index]))
    vectors = np.zeros((len(texts), d_model), dtype=np.float32)
    for start in range(0, len(order), BATCH_SIZE):
        indices = order[start : start + BATCH_SIZE]
        vectors[indices] = embed_batch([texts[index] for index in indices])
    return vectors


def mean_pool(hidden: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    """Return the normalised mean of the hidden states that are not padding."""
    weights = mask[..., None].to(hidden.dtype)
    vectors: np.ndarray = torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1).numpy()
    return vectors


def build_transformers_embedder(directory: str, sort_by_length: bool) -> Embedder:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, attn_implementation="sdpa").eval()

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        batch = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            return mean_pool(model(**batch).last_hidden_state, batch["attention_mask"])

    d_model = model.config.hidden_size
    return lambda texts: embed_in_batches(texts, d_model, sort_by_length, embed_batch)


def build_sentence_transformers_embedder(directory: str) -> Embedder:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(directory, device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=BATCH_SIZE, normalize_embeddings=True)


def export_onnx(directory: str, folder: Path) -> dict[str, Path]:
    """Export an encoder in float32 and quantise it as ONNX Runtime does; return the files by precision."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    model = AutoModel.from_pretrained(directory, attn_implementation="eager").eval().requires_grad_(False)
    names, paths = ["input_ids", "attention_mask"], {name: folder / f"{name}.onnx" for name in ("float32", "int8")}
    ids = torch.ones(2, 7, dtype=torch.long)

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model  # a submodule, or its weights were constants, which are not quantised

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            HiddenStates(), (ids, ids), str(paths["float32"]), input_names=names, output_names=["hidden"], dynamo=False,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in (*names, "hidden")},
        )  # fmt: skip
        quantize_dynamic(paths["float32"], paths["int8"], per_channel=True, weight_type=QuantType.QInt8)
    return paths


def build_onnxruntime_embedder(directory: str, path: Path, n_threads: int) -> Embedder:
    import onnxruntime
    from transformers import AutoTokenizer

    tokenizer, settings = AutoTokenizer.from_pretrained(directory), onnxruntime.SessionOptions()
    settings.intra_op_num_threads = n_threads
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        batch = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="np")
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return mean_pool(torch.from_numpy(session.run(None, inputs)[0]), torch.from_numpy(inputs["attention_mask"]))

    d_model = regard.load(directory, device="cpu").network.config.d_model
    return lambda texts: embed_in_batches(texts, d_model, True, embed_batch)


def build_ctranslate2_embedder(
    directory: str, sort_by_length: bool, n_threads: int, converted_path: Path, compute_type: str = "float32"
) -> Embedder:
    import ctranslate2
    from transformers import AutoTokenizer

    if not converted_path.exists():
        ctranslate2.converters.TransformersConverter(directory).convert(str(converted_path))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = ctranslate2.Encoder(
        str(converted_path), compute_type=compute_type, intra_threads=n_threads, inter_threads=1
    )

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        ids = tokenizer(list(texts), truncation=True, max_length=256)["input_ids"]
        hidden = torch.from_numpy(np.array(model.forward_batch(ids).last_hidden_state))
        mask = torch.arange(hidden.shape[1]) < torch.tensor([len(each) for each in ids])[:, None]
        return mean_pool(hidden, mask)

    d_model = regard.load(directory, device="cpu").network.config.d_model
    return lambda texts: embed_in_batches(texts, d_model, sort_by_length, embed_batch)


def build_embedders(directory: str, n_threads: int, folder: Path) -> dict[str, Embedder]:
    """Return regard and the peers that are installed."""
    embedders: dict[str, Embedder] = {
        "regard": build_regard_embedder(directory),
        "regard int8": build_regard_embedder(directory, "int8"),
    }
    if not harness.is_installed("transformers"):
        return embedders
    embedders["transformers, in order"] = build_transformers_embedder(directory, sort_by_length=False)
    embedders["transformers, sorted"] = build_transformers_embedder(directory, sort_by_length=True)
    if harness.is_installed("sentence_transformers"):
        embedders["sentence-transformers"] = build_sentence_transformers_embedder(directory)
    if harness.is_installed("ctranslate2"):
        for name, sort in {"in order": False, "sorted": True}.items():
            embedder = build_ctranslate2_embedder(directory, sort, n_threads, folder / "converted")
            embedders[f"CTranslate2, {name}"] = embedder
        embedders["CTranslate2 int8, sorted"] = build_ctranslate2_embedder(
            directory, True, n_threads, folder / "converted", "int8"
        )
    if harness.is_installed("onnxruntime") and harness.is_installed("onnx"):
        for precision, path in export_onnx(directory, folder).items():
            embedders[f"ONNX Runtime {precision}, sorted"] = build_onnxruntime_embedder(directory, path, n_threads)
    return embedders


def save_tiny_bert(folder: Path) -> str:
    """Save a BertModel with random weights and a WordPiece tokenizer; return its directory."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokens = [*ENCODER_SPECIAL_TOKENS, *(first + second for first in "abcdefgh" for second in "aeiou")]
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    start, end = (("[CLS]", tokens.index("[CLS]")), ("[SEP]", tokens.index("[SEP]")))
    backend.post_processor = processors.BertProcessing(end, start)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **names).save_pretrained(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    shape["position_embedding_type"] = "absolute"  # CTranslate2 asks for it
    BertModel(BertConfig(vocab_size=len(tokens), max_position_embeddings=256, **shape)).save_pretrained(folder)
    return str(folder)


def bench_embedders(embedders: dict[str, Embedder], texts: Sequence[str], options: argparse.Namespace) -> None:
    """Time the embedders and print speeds and cosine similarities."""
    vectors = {name: embed(texts) for name, embed in embedders.items()}  # warm-up

    def build_contender(embed: Embedder) -> harness.Contender:
        return lambda: len(embed(texts))

    contenders = {name: build_contender(embed) for name, embed in embedders.items()}
    rounds = harness.time_rounds(contenders, "cpu", options.rounds)
    reference = vectors.get("transformers, in order", vectors["regard"])
    cosines = {name: f"least cosine {(each * reference).sum(-1).min():.6f}" for name, each in vectors.items()}
    title = f"{len(texts)} texts, {options.threads} threads, median of {options.rounds} rounds"
    n_batches = -(-len(texts) // BATCH_SIZE)
    harness.print_speeds(title, rounds, steps=n_batches, step="batch of 32", unit="sentences/s", notes=cosines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.SpeedParser(__doc__, rounds=5, smoke={"sentences": 16, "threads": 1})
    parser.add_argument("model", nargs="?", help="a Hugging Face directory")
    parser.add_argument("--file", help="texts, one per line; random words if not given")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", default=[""], help="contenders, by the beginning of their names")
    options = parser.parse(arguments)
    if options.model is None and not options.smoke:
        parser.error("no model; give a Hugging Face directory, or --smoke")
    if options.model is None and not harness.is_installed("transformers"):
        return
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with TemporaryDirectory() as folder:
        model = options.model or save_tiny_bert(Path(folder) / "bert")
        texts = read_texts(options.file, options.sentences) if options.file else sample_texts(model, options.sentences)
        embedders = build_embedders(model, options.threads, Path(folder))
        chosen = {name: each for name, each in embedders.items() if name.startswith(tuple(options.only))}
        bench_embedders(chosen, texts, options)


if __name__ == "__main__":
    harness.run_script(main)
