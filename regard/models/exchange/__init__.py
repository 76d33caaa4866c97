"""Import and export of Hugging Face directories.

    BERT, RoBERTa, XLM-R, DistilBERT         encoders              GPT-2                    language models
    Marian, BART, Pegasus, Blenderbot        translators

    read_hf_directory(directory)   config.json, model.safetensors and tokenizer.json (or vocab.txt) as an `HFCheckpoint`
    checkpoint.load_model(build)   a model of regard with its weights, or `load_into` one
    write_hf_directory(...)        a model of regard as a directory that transformers loads

Both directions use the same tables, one file for each family: config keys (hf_config.py) and tensors
(weight_mapping.py). Outputs are equal on both sides (bench/transformers_parity.py). Unsupported features are refused by
name; nothing is loaded in part.
"""

from regard.models.exchange.equivalents import to_exchangeable
from regard.models.exchange.exporting import (
    choose_hf_family,
    label_values,
    write_hf_directory,
    write_tokenizer_files,
)
from regard.models.exchange.importing import (
    HF_FAMILIES,
    HFCheckpoint,
    describe_hf_directory,
    is_hf_directory,
    read_hf_directory,
)

__all__ = [
    "HF_FAMILIES",
    "HFCheckpoint",
    "choose_hf_family",
    "describe_hf_directory",
    "is_hf_directory",
    "label_values",
    "read_hf_directory",
    "to_exchangeable",
    "write_hf_directory",
    "write_tokenizer_files",
]
