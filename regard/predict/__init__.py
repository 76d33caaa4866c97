"""Prediction: the use of a trained model, one file for each kind of output.

    translation.py       texts to translations         classification.py   texts to classes or scores
    text_generation.py   prompts to continuations      tagging.py          words to labels
    mask_filling.py      masks to words                embedding.py        texts, words and tokens to vectors
    perplexity.py        texts to likelihoods          next_sentence.py    pairs of texts: does one follow the other?
    question_answering.py    questions to spans of their context

A predictor holds a model, its tokenizer and a device; a task's `make_predictor` builds it. The API calls predictors,
and tasks do for validation metrics. Nothing here reads training data, computes a training loss or knows a task.
"""
