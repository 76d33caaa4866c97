"""A graph of ONNX operators, built node by node: the operators that Transformers consist of.

Opset 17, which ONNX Runtime has had since 2022. Layers and heads are composed of these in onnx_layers.py and
onnx_encoder.py; there is no tracing, so no exporter of torch is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

OPSET = 17
IR_VERSION = 8
"""The version of the file format that belongs to the opset."""

MASKED_SCORE = float(np.finfo(np.float32).min)
"""The score of a key that may not be attended to; -inf would give NaN where all keys are masked."""

Value = str
"""The name of a tensor of the graph."""


@dataclass
class OnnxGraph:
    """The nodes and constants of a graph so far; each method appends a node and returns the name of its result."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def apply(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        """Append a node of one output."""
        from onnx import helper

        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Tensor | np.ndarray | Sequence[int] | float) -> Value:
        """Add a constant; float32 for numbers with a fraction, int64 for whole ones."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        stored = self.constants.setdefault(name, np.array(array, dtype=kind, order="C"))
        assert stored.shape == array.shape, f"two constants are called {name}"
        return name

    def number(self, value: float | int) -> Value:
        """Add a constant scalar."""
        return self.constant(f"number_{value!r}", np.asarray(value))

    def whole_numbers(self, *values: int) -> Value:
        """Add a constant vector of whole numbers, such as axes or a shape."""
        return self.constant("integers_" + "_".join(map(str, values)), np.asarray(values, dtype=np.int64))

    def add(self, a: Value, b: Value) -> Value:
        return self.apply("Add", a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        return self.apply("Mul", a, b)

    def matmul(self, a: Value, b: Value) -> Value:
        return self.apply("MatMul", a, b)

    def linear(self, x: Value, name: str, weight: Tensor, bias: Tensor | None = None) -> Value:
        """Append ``x W^T + b``."""
        product = self.matmul(x, self.constant(f"{name}.weight", weight.T))
        return product if bias is None else self.add(product, self.constant(f"{name}.bias", bias))

    def layer_norm(self, x: Value, name: str, norm: nn.LayerNorm) -> Value:
        weight, bias = (self.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias"))
        return self.apply("LayerNormalization", x, weight, bias, axis=-1, epsilon=norm.eps)

    def reshape(self, x: Value, *shape: int) -> Value:
        """Append a reshape; 0 keeps a dimension, -1 is inferred."""
        return self.apply("Reshape", x, self.whole_numbers(*shape))

    def transpose(self, x: Value, *order: int) -> Value:
        return self.apply("Transpose", x, perm=list(order))

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        return self.apply("Unsqueeze", x, self.whole_numbers(*axes))

    def slice(self, x: Value, start: int, end: int, axis: int) -> Value:
        return self.apply("Slice", x, self.whole_numbers(start), self.whole_numbers(end), self.whole_numbers(axis))

    def sum_over(self, x: Value, axis: int, *, keep: bool = True) -> Value:
        return self.apply("ReduceSum", x, self.whole_numbers(axis), keepdims=int(keep))

    def to_float(self, x: Value) -> Value:
        from onnx import TensorProto

        return self.apply("Cast", x, to=TensorProto.FLOAT)

    def write(self, path: Path, inputs: Mapping[str, Sequence[str]], outputs: Mapping[Value, tuple[str, Any]]) -> None:
        """Write the graph with int64 inputs of these dimensions, and its outputs: value, name and dimensions."""
        from onnx import TensorProto, checker, helper, numpy_helper, save_model

        for value, (name, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        graph = helper.make_graph(
            self.nodes,
            "regard",
            [helper.make_tensor_value_info(name, TensorProto.INT64, list(dims)) for name, dims in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)) for name, dims in outputs.values()],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(
            graph, producer_name="regard", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        checker.check_model(model, full_check=True)
        save_model(model, str(path))
