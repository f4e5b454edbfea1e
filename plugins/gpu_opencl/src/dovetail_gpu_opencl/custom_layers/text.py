"""The text in front of a custom layer's source: what the runtime defines, then what the user defines."""

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.errors import OperatorError
from dovetail.frontend import printable
from dovetail_gpu_opencl.custom_layers.attributes import attribute_text
from dovetail_gpu_opencl.custom_layers.spec import Define, Layer

__all__ = ["ORDERS", "TensorText", "assemble"]

ORDERS = {"BFYX": (0, 1, 2, 3), "BYXF": (0, 2, 3, 1), "YXFB": (2, 3, 1, 0), "FYXB": (1, 2, 3, 0)}
"""For each format the dimensions B, F, Y, X from outermost to innermost in memory."""


@dataclass(frozen=True, slots=True)
class TensorText:
    """The defines of a tensor. All arrays are in the order B, F, Y, X, whatever the format; sizes are in elements.

    `dims` are at least four; more have the format BFYX, which means "in the order of the dimensions". `any_format` says
    that the layer takes the tensor as it comes. `lower` and `upper` are the padding before and after each dimension, none if
    empty.
    """

    name: str
    dims: tuple[int, ...]
    c_type: str
    format: str = "BFYX"
    any_format: bool = False
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    @property
    def pitches(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension, padding included."""
        order = ORDERS[self.format] if len(self.dims) == 4 else tuple(range(len(self.dims)))
        pitches = [0] * len(self.dims)
        step = 1
        for d in reversed(order):
            pitches[d] = step
            step *= self.dims[d] + self._lower[d] + self._upper[d]
        return tuple(pitches)

    @property
    def offset(self) -> int:
        """Elements before the first valid one."""
        return sum(pitch * lower for pitch, lower in zip(self.pitches, self._lower, strict=True))

    @property
    def _lower(self) -> tuple[int, ...]:
        return self.lower or (0,) * len(self.dims)

    @property
    def _upper(self) -> tuple[int, ...]:
        return self.upper or (0,) * len(self.dims)

    def lines(self) -> Sequence[str]:
        """The `#define` lines, without line ends."""
        formats = [self.format, *(["ANY"] if self.any_format else [])]
        return (
            *_array(f"{self.name}_DIMS", "int", self.dims),
            f"#define {self.name}_TYPE {self.c_type}",
            *(f"#define {self.name}_FORMAT_{name} " for name in formats),
            *_array(f"{self.name}_LOWER_PADDING", "int", self._lower),
            *_array(f"{self.name}_UPPER_PADDING", "int", self._upper),
            *_array(f"{self.name}_PITCHES", "int", self.pitches),
            f"#define {self.name}_OFFSET {self.offset}",
        )


def assemble(
    layer: Layer,
    node: str,
    attributes: Mapping[str, Any],
    tensors: Sequence[TensorText],
    global_size: Sequence[int],
    local_size: Sequence[int],
) -> str:
    """The whole source of a node. Raises `OperatorError` for an attribute that is missing or is not text."""
    inputs = sum(tensor.name.startswith("INPUT") for tensor in tensors)
    lines = [
        "// Custom Layer Built-ins",
        f"#define NUM_INPUTS {inputs}",
        *_array("GLOBAL_WORKSIZE", "size_t", global_size),
        *_array("LOCAL_WORKSIZE", "size_t", local_size),
        *(line for tensor in tensors for line in tensor.lines()),
        "",
        f"// Layer {printable(node)} using Custom Layer {printable(layer.name)}",
        "// Custom Layer User Defines",
        *(_user_define(define, attributes) for define in layer.defines),
    ]
    return "\n".join(lines) + "\n" + layer.source


def _array(name: str, c_type: str, values: Sequence[int]) -> tuple[str, str]:
    listed = "".join(f"{value}," for value in values)
    return f"#define {name}_SIZE {len(values)}", f"#define {name} ({c_type} []){{ {listed} }} "


def _user_define(define: Define, attributes: Mapping[str, Any]) -> str:
    value = define.default
    if attributes.get(define.param) is not None:
        value = attribute_text(define, attributes[define.param])
    elif define.param and value is None:
        known = ", ".join(name for name, given in attributes.items() if given is not None) or "none"
        raise OperatorError(
            f"{define.place}: {define.name!r} needs the attribute {define.param!r}, which the node lacks",
            hint=f"give the Define a default; attributes of the node: {known}",
        )
    shown = f"({define.type}) {{{value or ''}}}" if define.type.endswith("[]") else value or ""
    return f"#define {define.name} {shown}"
