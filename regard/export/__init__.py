"""Export of models to other engines, each checked by running the result there beside regard.

    hf            a Hugging Face directory, for transformers
    ctranslate2   translators, language models and encoders, for CTranslate2
    onnx          encoders with their heads, for ONNX Runtime
    word2vec      word vectors, a file in word2vec's format
    regard        any model without its state of training, in 32, 16 or 8 bits

exporting.py chooses and checks; one file writes each format, and one runs each engine. Called by `regard export` and,
for `--engine ctranslate2`, by `regard translate`.
"""

from regard.export.exporting import EXPORT_FORMATS, export_model

__all__ = ["EXPORT_FORMATS", "export_model"]
