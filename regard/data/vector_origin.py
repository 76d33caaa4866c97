"""The origin of a file of vectors: which model made them, how, and of which texts; written beside or into the file.

vectors.npy        vectors.npy.json beside it
vectors.parquet    the entry "regard" of its metadata

So a file of vectors is searched only with the model that made it (vector_search.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.errors import InputError

PARQUET_KEY = "regard"


@dataclass(frozen=True)
class VectorOrigin:
    """The model, by its fingerprint, and the options of embedding; `layers` is empty for static vectors."""

    model: str
    level: str
    layers: tuple[int, ...]
    pooling: str
    normalised: bool
    max_length: int

    def to_json(self, **more: object) -> str:
        return json.dumps({**asdict(self), **more})


@dataclass(frozen=True)
class OriginRecord:
    """The origin that a file states, and the number of its vectors and the digest of their texts, where it has them."""

    origin: VectorOrigin
    n_vectors: int | None = None
    texts: str = ""

    @classmethod
    def parse(cls, path: Path, content: str | bytes) -> OriginRecord:
        """Return the record that was written as JSON; refuse other content."""
        try:
            values: dict[str, Any] = json.loads(content)
            kinds = {"model": str, "level": str, "layers": list, "pooling": str, "normalised": bool, "max_length": int}
            if any(type(values[name]) is not kind for name, kind in kinds.items()):
                raise ValueError(content)
            layers = tuple(int(layer) for layer in values["layers"])
            origin = VectorOrigin(**{name: values[name] for name in kinds} | {"layers": layers})
            return cls(origin, values.get("vectors"), str(values.get("texts", "")))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{path}: damaged; embed the texts again") from None


class TextDigest:
    """A digest of texts in their order, updated as they arrive."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.n_texts = 0

    def update(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.n_texts += 1
            self._hash.update(text.encode(errors="surrogatepass") + b"\n")

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def origin_path(path: Path) -> Path:
    """Return the file that states the origin of a .npy file."""
    return path.with_name(f"{path.name}.json")
