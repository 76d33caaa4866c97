"""Recurrent models, and one that reads every token by itself: SPEC 4.2, 4.3, 4.5, 4.8, 4.10.

    config.py           the shapes of all of them       blocks.py     layers and embeddings from their names
    seq2seq.py          pairs                            encoder.py    texts, also without any layers ("static")
    language_model.py   what comes next

Every text has a row to itself (data/order.py's `BucketOrder`). All widths are `d_model`: token vectors, what leaves a
layer (both directions together), and what is compared with the vectors of words; so dot products need no projection,
tied vectors neither, and every view of look/ takes them as they are.
"""
