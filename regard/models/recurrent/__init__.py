"""Recurrent models (LSTM, GRU) and static embeddings.

    config.py           configs and presets             blocks.py     layers and embeddings from the names in a config
    seq2seq.py          encoder-decoder                 encoder.py    recurrent encoder; static encoder without layers
    language_model.py   causal language model

Every text has a row of its own (data/order.py's `BucketOrder`). All widths are `d_model`: token embeddings, the output
of a layer (both directions concatenated) and the input of the softmax; so dot-product attention and tied embeddings
need no projection, and every view of regard.look applies unchanged.
"""
