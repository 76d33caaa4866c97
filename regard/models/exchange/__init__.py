"""Weights of other libraries in and out: Hugging Face directories of BERT, RoBERTa, DistilBERT, GPT-2, Marian, BART.

    read(directory)     their config.json, model.safetensors and tokenizer.json (or vocab.txt) as a `Found`
    found.fill(model)   their weights in a model of ours
    write(...)          a model of ours as a directory that their library loads

Both ways go through the same tables, one file for each family: names of keys (options.py) and tensors (tensors.py).
Numbers are the same on both sides (bench/transformers_parity.py). What we do not have is refused by its name, never half-loaded.
"""

from regard.models.exchange.exporting import choose_hf_family, write_hf_directory
from regard.models.exchange.importing import HF_FAMILIES, HFCheckpoint, is_hf_directory, read_hf_directory

__all__ = [
    "HF_FAMILIES",
    "HFCheckpoint",
    "choose_hf_family",
    "is_hf_directory",
    "read_hf_directory",
    "write_hf_directory",
]
