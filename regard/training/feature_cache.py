"""The features of a frozen encoder, computed once per run instead of at every step.

Where all weights but those of the heads are frozen, and the inputs of a text are the same in every epoch, so are its
hidden states (`has_cacheable_features` of a task). They are computed before the first step, one row for each token of
a store, and training reads them:

    TokenStore "text"   17  5  2 | 40  2  |  ...          the ids of each example
    indexed store        0  1  2 |  3  4  |  ...          the row of each token in the table of features

A `CachedEncoder` stands in for the model: it looks its input up in the table, and has the heads of the model itself. So
a task makes its batches and computes its loss as usual. Called by loop.py; plan.py reports the memory it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import SegmentedRows
from regard.data.columns import Column
from regard.data.packing import concatenate_ranges
from regard.data.store import TokenStore
from regard.models.interfaces import EncoderModel
from regard.models.layer_combination import COMBINATION_NAME
from regard.predict.encoder_inference import (
    inputs_to_rows,
    make_inference_batches,
    unpad_rows,
)
from regard.predict.worker_threads import map_batches_in_threads
from regard.progress import track
from regard.runs.device import available_memory
from regard.tasks.shared.encoder_task import EncoderTask, read_stored_inputs
from regard.training.prepare import PreparedRun
from regard.training.schedule import sum_micro_batches

MEMORY_FRACTION = 0.5
"""The part of the free memory that cached features may take."""

TEXT_COLUMN = "text"


class CachedEncoder(EncoderModel):
    """Stands in for a frozen encoder: returns the rows of a table of features, and shares the heads.

    The table has a vector for each token, or the states of all layers where a head learns to mix them.
    """

    states: Tensor

    def __init__(self, model: EncoderModel, states: Float[Tensor, "N ..."]) -> None:
        super().__init__()
        self.config, self.heads, self.encoder = model.config, model.heads, nn.ModuleList()
        self.register_buffer("states", states, persistent=False)

    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T W"]:
        return self.features(rows, lengths)

    def features(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T W"]:
        if self.states.ndim == 2:
            return self.states[rows.ids]
        combined: Tensor = self.heads[COMBINATION_NAME](list(self.iter_hidden_states(rows, lengths)))
        return combined

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        yield from self.states[rows.ids].unbind(2)


@dataclass(frozen=True)
class CachePlan:
    """The size of the features of a run, or the reason why they are not cached."""

    n_bytes: int = 0
    problem: str = ""

    @property
    def is_used(self) -> bool:
        return self.n_bytes > 0 and not self.problem


def plan_cache(prepared: PreparedRun) -> CachePlan | None:
    """Return the plan of caching features; None if nothing can be cached.

    All steps of the run count, so that one that is resumed computes as one that never stopped.
    """
    model, task = prepared.model, prepared.task
    if prepared.config.train.unfreeze != "none":
        return None
    if not (task.has_cacheable_features and isinstance(model, EncoderModel) and _is_encoder_frozen(model)):
        return None
    dtype = getattr(torch, prepared.config.train.precision)
    width = int(np.prod(feature_shape(model)))
    sizes = ((prepared.train_store, dtype.itemsize), (prepared.valid_store, torch.float32.itemsize))
    n_bytes = sum(len(store[TEXT_COLUMN].ids) * width * itemsize for store, itemsize in sizes)
    train = prepared.config.train
    if sum_micro_batches(train, train.steps) <= prepared.train_order.estimate().n_batches:
        return CachePlan(n_bytes, "hidden states are computed at every step: no text is read twice")
    if n_bytes > MEMORY_FRACTION * available_memory(prepared.device):
        return CachePlan(n_bytes, f"hidden states are computed at every step: {n_bytes / 2**30:.1f} GiB would not fit")
    return CachePlan(n_bytes)


def _is_encoder_frozen(model: EncoderModel) -> bool:
    """Return True if only heads are trained."""
    return not any(weight.requires_grad for name, weight in model.named_parameters() if not name.startswith("heads."))


def feature_shape(model: EncoderModel) -> tuple[int, ...]:
    """Return the shape of the features of one token: a vector, or one for each layer where their mix is learned."""
    combination = dict(model.heads).get(COMBINATION_NAME)
    if combination is None:
        return (model.config.d_model,)
    if any(True for _ in combination.parameters()):
        return len(model.encoder) + 1, model.config.d_model
    width: int = combination.width  # type: ignore[assignment]
    return (width,)


def cache_features(prepared: PreparedRun) -> tuple[PreparedRun, PreparedRun]:
    """Compute all features; return the run as training sees it, and as validation does, which is in float32."""
    dtype = getattr(torch, prepared.config.train.precision)
    train = compute_store_features(prepared, prepared.train_store, dtype)
    valid = compute_store_features(prepared, prepared.valid_store, torch.float32)
    model = prepared.model
    assert isinstance(model, EncoderModel)
    return (
        replace(prepared, model=CachedEncoder(model, train), train_store=index_store(prepared.train_store)),
        replace(prepared, model=CachedEncoder(model, valid), valid_store=index_store(prepared.valid_store)),
    )


def index_store(store: TokenStore) -> TokenStore:
    """Return the store with the number of each token in place of its id."""
    column = store[TEXT_COLUMN]
    numbers = np.arange(len(column.ids), dtype=np.int32)
    return TokenStore(store.path, {**store.columns, TEXT_COLUMN: Column(numbers, column.offsets)}, store.digest)


def compute_store_features(prepared: PreparedRun, store: TokenStore, dtype: torch.dtype) -> Float[Tensor, "N ..."]:
    """Return the features of every token of a store."""
    model, task, device = prepared.model, prepared.task, prepared.device
    assert isinstance(model, EncoderModel)
    assert isinstance(task, EncoderTask)
    column, shape = store[TEXT_COLUMN], feature_shape(model)
    table = torch.empty((len(column.ids), *shape), dtype=dtype, device=device)
    model.eval()

    def compute(chosen: list[int]) -> Tensor:
        rows = inputs_to_rows(read_stored_inputs(store, np.array(chosen)), task.template.pad_id).to(device)
        with torch.no_grad():
            return _compute_token_features(model, rows, mixes_layers=len(shape) > 1)

    batches = list(make_inference_batches(column.lengths.tolist(), device))
    results = map_batches_in_threads(compute, batches, device)
    for chosen, features in track(results, f"features to {store.purpose} on", len(batches)):
        items = np.array(chosen)
        tokens = concatenate_ranges(column.offsets[items], column.lengths[items])
        table[torch.from_numpy(tokens).to(device)] = features.to(dtype)
    return table


def _compute_token_features(model: EncoderModel, rows: SegmentedRows, *, mixes_layers: bool) -> Float[Tensor, "N ..."]:
    """Return the features of the tokens of all rows, one after another; on a CPU padding is not computed."""
    lengths: list[int] = []
    if rows.ids.device.type == "cpu":
        rows, lengths = unpad_rows(rows)
    states = (
        torch.stack(list(model.iter_hidden_states(rows, lengths)), 2) if mixes_layers else model.features(rows, lengths)
    )
    return states[rows.segment > 0]
