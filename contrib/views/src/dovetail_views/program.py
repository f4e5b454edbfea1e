"""One Python file that computes a part of a model on a device and compares the result with a peer's."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.graph import Graph, Node, PostOps, TensorType
from dovetail_views.bisect import Part

__all__ = ["program"]


def program(
    part: Part, title: str, device: str, properties: Mapping[str, Any], tolerance: float, extensions: Sequence[str] = ()
) -> str:
    """The text of the program. It needs dovetail with the packages that the part needs, and ends with 1 where results differ.

    Raises `UsageError` for an attribute that cannot be written as Python.
    """
    writer = _Writer()
    body = writer.graph(part.model.graph, 1)
    arrays = {**writer.arrays, **{f"input {name}": value for name, value in part.inputs.items()}}
    arrays |= {f"expected {name}": value for name, value in part.expected.items()}
    for name, value in arrays.items():
        if np.asarray(value).dtype.kind in "OV":
            raise UsageError(f"the program cannot hold the {name}, whose type is {np.asarray(value).dtype}")
    packed = io.BytesIO()
    np.savez_compressed(
        packed, allow_pickle=False, **{f"{index}": np.asarray(value) for index, value in enumerate(arrays.values())}
    )
    template = (files("dovetail_views") / "data" / "program.txt").read_text(encoding="utf-8")
    for name, text in {
        "TITLE": repr(title),
        "IMPORTS": "\n".join(sorted(writer.imports)),
        "DEVICE_": repr(device),
        "PROPERTIES_": repr(dict(properties)),
        "TOLERANCE_": repr(tolerance),
        "EXTENSIONS_": repr(list(extensions)),
        "OPSETS_": repr(dict(part.model.opsets)),
        "NAMES_": repr(list(arrays)),
        "GRAPH_": body,
        "DATA_": "\n".join(_lines(base64.b64encode(packed.getvalue()).decode())),
    }.items():
        template = template.replace(f"@{name}@", text)
    return template


def _lines(text: str) -> list[str]:
    return [text[i : i + 120] for i in range(0, len(text), 120)]


class _Writer:
    """Graphs as Python expressions. Arrays go to `arrays`, what has to be imported to `imports`."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.imports: set[str] = set()

    def graph(self, graph: Graph, depth: int) -> str:
        space, outer = "    " * (depth + 1), "    " * depth
        nodes = "".join(f"\n{space}    {self.node(node, depth + 2)}," for node in graph.nodes)
        constants = ", ".join(f"{name!r}: {self.array(array, name)}" for name, array in graph.constants.items())
        types = ", ".join(f"{name!r}: {_typed(graph.types[name])}" for name in graph.inputs if name in graph.types)
        parts = (
            f"nodes=({nodes}\n{space}),",
            f"inputs={graph.inputs!r},",
            f"outputs={graph.outputs!r},",
            f"constants={{{constants}}},",
            f"types=typed({{{types}}}, {{{constants}}}),",
            f"name={graph.name!r},",
        )
        return "Graph(\n" + "".join(f"{space}{part}\n" for part in parts) + f"{outer})"

    def node(self, node: Node, depth: int) -> str:
        chain = "".join(f"{self.value(post_op, depth)}, " for post_op in node.post_ops)
        ends = f"{node.inputs!r}, {node.outputs!r}, PostOps(({chain})), ({node.name!r},)"
        return f"Node({node.name!r}, {self.operator(node.op, depth)}, {ends})"

    def operator(self, op: Any, depth: int) -> str:
        given = (
            {f.name: getattr(op, f.name) for f in fields(op) if f.init}
            if is_dataclass(op)
            else {n: getattr(op, n) for n in op.attributes}
        )
        return self._made(op, given, depth)

    def _made(self, value: Any, given: Mapping[str, Any], depth: int) -> str:
        self.imports.add(f"from {type(value).__module__} import {type(value).__qualname__}")
        return f"{type(value).__qualname__}({', '.join(f'{name}={self.value(one, depth)}' for name, one in given.items())})"

    def array(self, array: Any, name: str) -> str:
        key = f"constant {name}"
        while key in self.arrays and self.arrays[key] is not array:
            key += "'"
        self.arrays[key] = array
        return f"ARRAYS[{key!r}]"

    def value(self, value: Any, depth: int) -> str:
        """An attribute. Raises `UsageError` for what cannot be written."""
        if isinstance(value, Graph):
            return self.graph(value, depth)
        if isinstance(value, np.ndarray | np.generic):
            return self.array(np.asarray(value), "attribute")
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{key!r}: {self.value(one, depth)}" for key, one in value.items()) + "}"
        if isinstance(value, tuple | list) and not isinstance(value, PostOps):
            items = "".join(f"{self.value(one, depth)}, " for one in value)
            return f"({items})" if isinstance(value, tuple) else f"[{items}]"
        if isinstance(value, float) and not np.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._made(value, {f.name: getattr(value, f.name) for f in fields(value) if f.init}, depth)
        raise UsageError(f"an attribute of the type {type(value).__name__} cannot be written as Python")


def _typed(tensor: TensorType) -> str:
    return f"TensorType(DType({tensor.dtype.value!r}), {tensor.shape!r})"
