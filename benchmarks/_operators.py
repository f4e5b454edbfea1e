"""Models of one operator, in sizes that real networks have; see operators.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto as T
from onnx import helper, numpy_helper

RNG = np.random.default_rng(0)
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """An operator with arrays for its inputs, of which those in `constants` are weights."""

    name: str
    op: str
    inputs: Sequence[Array | None]
    outputs: int
    constants: frozenset[int]
    domain: str
    opset: int
    attributes: dict[str, Any]

    def model(self) -> bytes:
        """The ONNX file."""
        names = [f"i{index}" if array is not None else "" for index, array in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        outputs = [f"o{index}" for index in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attributes)
        given = [
            helper.make_tensor_value_info(
                name, T.STRING if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for name, a in self.feed().items()
        ]
        weights = [
            numpy_helper.from_array(a, f"i{index}")
            for index, a in enumerate(self.inputs)
            if a is not None and index in self.constants
        ]
        graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info(name) for name in outputs], weights)
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 3 if self.domain == "ai.onnx.ml" else 1))
        version = 11 if self.opset > 22 else 10
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=version).SerializeToString())

    def feed(self) -> dict[str, Array]:
        """The inputs of a run."""
        return {f"i{index}": a for index, a in enumerate(self.inputs) if a is not None and index not in self.constants}


def case(
    name: str,
    op: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    const: Any = (),
    domain: str = "",
    opset: int = 21,
    **attributes: Any,
) -> Case:
    arrays = [None if value is None else np.asarray(value) for value in inputs]
    return Case(name, op, arrays, outputs, frozenset(const), domain, opset, attributes)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return (RNG.random(shape) + 0.5).astype(np.float32)


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.05).astype(np.float32)


def sizes(*values: int) -> Array:
    return np.array(values, np.int64)


def whole(end: int, *shape: int) -> Array:
    return RNG.integers(0, end, shape)


def pixels(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def truths(*shape: int) -> Array:
    return RNG.random(shape) < 0.5


def trees(count: int, depth: int, classes: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Complete trees over 30 features: the attributes of their nodes, and those of their leaves without the prefix."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    leaves: dict[str, list[Any]] = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for tree in range(count):
        for index in range(2 ** (depth + 1) - 1):
            is_leaf = index >= 2**depth - 1
            feature, limit = int(RNG.integers(30)), float(RNG.standard_normal())
            inner = ("BRANCH_LEQ", 2 * index + 1, 2 * index + 2)
            row = (tree, index, 0, 0.0, "LEAF", 0, 0, 0) if is_leaf else (tree, index, feature, limit, *inner, 0)
            for values, value in zip(nodes.values(), row, strict=True):
                values.append(value)
            if is_leaf:
                for values, value in zip(
                    leaves.values(), (tree, index, tree % classes, float(RNG.standard_normal())), strict=True
                ):
                    values.append(value)
    return nodes, leaves


ROWS, PLANES, TOKENS = floats(64, 1024), floats(1, 64, 56, 56), floats(1, 128, 384)
