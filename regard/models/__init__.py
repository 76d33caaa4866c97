"""Models: built from their configs, with the training loss and the steps of decoding; they know no task and no run.

config.py            the [model] table of a recipe       blocks.py           modules of nn by the names in a config
interfaces.py        what a task calls of a model        architectures.py    config and model class by name
seq2seq.py           the Transformer of translation      language_model.py   the decoder-only Transformer
encoder.py           the Transformer encoder             heads.py            heads on an encoder
recurrent/           the models of an rnn                decoder_state.py    texts being generated
weights.py           weights as files                    exchange/           models of other libraries
"""
