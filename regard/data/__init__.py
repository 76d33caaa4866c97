"""Token ids on disk and the batches made of them.

store.py -> packing.py -> order.py -> batches.py -> prefetch.py
ids         items into    order of     tensors      built ahead of
on disk     rows          batches      (rows)       the training step
"""
