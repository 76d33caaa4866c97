"""Token ids on disk and the batches made of them.

store.py -> packing.py -> order.py -> batches.py -> prefetch.py
ids         who shares    which batch  tensors      made ahead of
on disk     a row         comes when   (rows)       the training step
"""
