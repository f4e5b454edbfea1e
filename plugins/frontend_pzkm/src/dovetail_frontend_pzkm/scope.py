"""Context for translating one layer: its attributes, its inputs, and nodes to write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import DType, FormatError, Node, UnboundOperator, as_constant, printable, unique_name
from dovetail_frontend_pzkm.schema import DataLayout, Layer

__all__ = ["OPSET", "Construction", "Scope", "Value", "stripped"]

OPSET = 20
"""The version of ONNX's operator set in which layers are expressed."""


@dataclass(frozen=True)
class Value:
    """A tensor: `name` in the graph, or a constant that gets one when a node first reads it in this form."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    array: NDArray[Any] | None = None
    layout: int = DataLayout.NCHW

    @property
    def label(self) -> str:
        """The name as messages show it: escaped and shortened."""
        return printable(self.name)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@dataclass
class Construction:
    """The graph so far."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    node_names: set[str] = field(default_factory=set)
    _forms: dict[tuple[str, tuple[int, ...], int], tuple[str, NDArray[Any]]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)

    def name_of(self, value: Value) -> str:
        """The name under which nodes read the value. A constant keeps its tensor's in the first form that is requested."""
        if value.array is None:
            return value.name
        form = (value.name, value.shape, id(value.array))
        if form not in self._forms:
            name = unique_name(value.name, self.taken) if value.name in self._used else value.name
            self._used.add(value.name)
            self.constants[name] = as_constant(value.array)
            self._forms[form] = name, value.array  # kept, so that no other array gets its id
        return self._forms[form][0]


def stripped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without the ones at its end."""
    end = len(shape)
    while end and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


@dataclass
class Scope:
    """One layer being translated: `inputs` by port name, None for one that is left out, and `outputs` in order."""

    graph: Construction
    layer: Layer
    name: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Value | None]
    outputs: Sequence[Value]

    def input(self, index: int) -> Value:
        """An input that must be there. Raises `FormatError`."""
        found = self.optional(index)
        if found is None:
            raise FormatError(f"input {index} is missing; the layer has {len(self.inputs)}")
        return found

    def optional(self, index: int) -> Value | None:
        """An input, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def expect_inputs(self, least: int, most: int | None = None) -> None:
        """Raise `FormatError` for any other number of inputs."""
        if not least <= len(self.inputs) <= (least if most is None else most):
            accepted = str(least) if most in (None, least) else f"{least} to {most}"
            raise FormatError(f"the layer has {len(self.inputs)} inputs; accepted: {accepted}")

    def required(self, name: str) -> Any:
        """An attribute without a default. Raises `FormatError` when the file gives none."""
        value = self.attributes[name]
        if value is None:
            raise FormatError(f"the attribute '{name}' is empty and has no default")
        return value

    @property
    def is_nhwc(self) -> bool:
        """The layer's data layout: its attribute, else that of its first input."""
        stated = self.attributes.get("dataLayout")
        return bool(self.input(0).layout == DataLayout.NHWC if stated is None else stated == "NHWC")

    # --- nodes ------------------------------------------------------------------------------------------------------------

    def node(
        self, op_type: str, inputs: Sequence[Value | None], shape: Sequence[int], dtype: DType | None = None, **raw: Any
    ) -> Value:
        """Add a node inside the layer and return its output."""
        first = inputs[0]
        assert first is not None
        name = unique_name(f"{self.name}/{op_type}", self.graph.node_names)
        value = Value(unique_name(name, self.graph.taken), tuple(shape), dtype or first.dtype)
        self._append(name, op_type, inputs, (value.name,), raw)
        return value

    def finish(
        self, op_type: str, inputs: Sequence[Value | None], shape: Sequence[int], dtype: DType | None = None, **raw: Any
    ) -> None:
        """Add the node that gives the layer's output, of this shape. Ones at its end are added or taken away as the file says.

        Raises `FormatError` when the file declares another shape or data type.
        """
        (out,) = self.outputs
        first = inputs[0]
        assert first is not None
        computed = tuple(int(d) for d in shape)
        self.check_output(out, computed, dtype or first.dtype)
        if out.shape != computed:
            inner = self.node(op_type, inputs, computed, dtype, **raw)
            self._append(self.name, "Reshape", (inner, self.ints(self.name, "shape", out.shape)), (out.name,), {})
        else:
            self._append(self.name, op_type, inputs, (out.name,), raw)

    def finish_many(self, op_type: str, inputs: Sequence[Value | None], **raw: Any) -> None:
        """Add a node that gives all outputs of the layer, whose shapes the caller has checked."""
        self._append(self.name, op_type, inputs, tuple(out.name for out in self.outputs), raw)

    def check_output(self, out: Value, computed: tuple[int, ...], dtype: DType) -> None:
        """Raise `FormatError` unless the file declares this output with this type, but for ones at the end."""
        if stripped(out.shape) != stripped(computed) or out.dtype is not dtype:
            raise FormatError(
                f"the layer gives {dtype}{list(computed)}; "
                f"the file declares its output '{out.label}' as {out.dtype}{list(out.shape)}",
                hint="shapes, pads and strides must fit; strides that are empty are those of the window",
            )

    def _append(
        self, name: str, op_type: str, inputs: Sequence[Value | None], outputs: tuple[str, ...], raw: dict[str, Any]
    ) -> None:
        read = [self.graph.name_of(value) if value else "" for value in inputs]
        while read and not read[-1]:
            read.pop()
        self.graph.nodes.append(Node(name, UnboundOperator("", op_type, OPSET, raw), tuple(read), outputs, origins=(name,)))

    # --- values -----------------------------------------------------------------------------------------------------------

    def ints(self, node: str, role: str, numbers: Sequence[int]) -> Value:
        """A constant input of int64, such as the shape of a Reshape."""
        return self.constant(f"{node}/{role}", np.array(numbers, np.int64))

    def constant(self, name: str, array: Any) -> Value:
        """A constant that the file does not hold itself."""
        stored = np.asarray(array)
        return Value(unique_name(name, self.graph.taken), stored.shape, DType.of(stored.dtype), stored)

    def like(self, value: Value, role: str, number: float) -> Value:
        """A scalar of the value's data type."""
        return self.constant(f"{self.name}/{role}", np.array(number, value.dtype.numpy))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The value with another shape of as many elements. Raises `FormatError` when the number differs."""
        wanted = tuple(shape)
        if wanted == value.shape:
            return value
        if math.prod(wanted) != math.prod(value.shape):
            raise FormatError(f"'{value.label}' has shape {list(value.shape)}; accepted: {list(wanted)}")
        if value.array is not None:
            return replace(value, shape=wanted, array=value.array.reshape(wanted))
        shape_name = f"{self.name}/Reshape"
        return self.node("Reshape", (value, self.ints(shape_name, "shape", wanted)), wanted)

    def transposed(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with its dimensions in another order."""
        shape = tuple(value.shape[axis] for axis in perm)
        if value.array is not None:
            return replace(value, shape=shape, array=np.ascontiguousarray(value.array.transpose(perm)))
        return self.node("Transpose", (value,), shape, perm=tuple(perm))

    def vector(self, value: Value | None, size: int) -> Value | None:
        """A bias or the like as [size], whatever ones surround it. Raises `FormatError` for another number of elements."""
        return None if value is None else self.reshaped(value, (size,))

    def image(self, value: Value) -> Value:
        """A 4-D value as NCHW, whatever the layer's layout. Raises `FormatError` for another rank."""
        if value.rank != 4:
            raise FormatError(f"'{value.label}' has shape {list(value.shape)}; accepted: four dimensions")
        return self.transposed(value, (0, 3, 1, 2)) if self.is_nhwc else value

    def finish_image(self, op_type: str, inputs: Sequence[Value | None], shape: Sequence[int], **raw: Any) -> None:
        """As `finish`, for a node that works in NCHW; `shape` is in that order."""
        if not self.is_nhwc:
            self.finish(op_type, inputs, shape, **raw)
            return
        inner = self.node(op_type, inputs, shape, **raw)
        self.finish("Transpose", (inner,), [shape[axis] for axis in (0, 2, 3, 1)], perm=(0, 2, 3, 1))
