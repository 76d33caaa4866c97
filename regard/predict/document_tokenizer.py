"""Documents and prompts as the tokens of a language model: a tokenizer with the tokens before and after a document.

tasks/lm.py encodes its training text with this, text_generation.py its prompts, perplexity.py what it scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.generate import SpecialTokens
from regard.predict.unknown_tokens import UnknownTokenCounter
from regard.text.documents import DocumentChunk
from regard.text.tokenizer import Tokenizer

Ids = list[int]


@dataclass(frozen=True)
class DocumentTokenizer:
    """A tokenizer with the tokens before and after a document.

    A prompt is the beginning of a document, or, unless `prompts_begin_documents`, any part of one, as for GPT-2.
    """

    tokenizer: Tokenizer
    start_id: int
    end_id: int
    prompts_begin_documents: bool = True

    @property
    def decoding_tokens(self) -> SpecialTokens:
        """The special tokens for generation, which ends with a document and writes no other special token."""
        suppressed_ids = tuple(self.tokenizer.special_ids - {self.end_id})
        return SpecialTokens(self.start_id, self.end_id, suppressed_ids)

    def encode_chunks(
        self, chunks: Sequence[DocumentChunk], encode: Callable[[Sequence[str]], list[Ids]] | None = None
    ) -> list[Ids]:
        """Return the tokens of each chunk, preceded by the last token before it; the end token follows a document."""
        texts = (encode or self.tokenizer.encode_batch)([each.text for each in chunks])
        before = iter(self.tokenizer.encode_batch([each.preceding_text for each in chunks if each.preceding_text]))
        first = [next(before)[-1] if each.preceding_text else self.start_id for each in chunks]
        ends = [[] if each.continues else [self.end_id] for each in chunks]
        return [[lead, *ids, *end] for lead, ids, end in zip(first, texts, ends, strict=True)]

    def encode_texts(self, texts: Sequence[str]) -> list[Ids]:
        """Return the tokens of texts; warn about characters that are not in the vocabulary."""
        unknown = UnknownTokenCounter(self.tokenizer)
        encoded = unknown.encode(texts)
        unknown.warn()
        return encoded

    def make_prompt_ids(self, ids: Ids) -> Ids:
        """Return the tokens of a prompt, after the document start token where prompts begin documents."""
        return [self.start_id, *ids] if self.prompts_begin_documents or not ids else ids
