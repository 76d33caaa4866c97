"""Prediction: what is done with a trained model, one file for each kind of output.

    question_answering.py   questions about a context to spans of it

A predictor holds a model, its tokenizer and a device; the API and the tasks (for validation metrics) call it. Nothing
here reads training data, computes a training loss or knows a task.
"""
