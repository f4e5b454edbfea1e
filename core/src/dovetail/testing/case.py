"""One test case of one operator: inputs and the outputs that any device must give."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.errors import UsageError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.model import Model
from dovetail.graph.types import MapType, OptionalType, SequenceType, Shape, TensorType
from dovetail.operators.operator import Operator

__all__ = ["Case", "Value", "each_array", "fits_type", "passed", "type_text"]

Value = NDArray[Any] | list[Any] | dict[Any, Any] | None
"""An array, a sequence (a list of arrays or maps), a map (a dict of plain values), or an optional that is absent (None)."""


@dataclass(frozen=True, eq=False)
class Case:
    """An operator with inputs and expected outputs.

    `expected` comes from hand, from ONNX, or from a computation in float64 that is not the operator's reference. `constants`
    are the indices of inputs that models give as constants (shapes, axes). A result `y` passes when
    `|y - expected| <= atol + rtol * |expected|` and its data type is that of `expected`; integers and bools must be equal.

    Values are arrays, lists of arrays or dictionaries (sequences), dictionaries (maps) and None: an input that is left out, an
    output that is an absent optional. Plain numbers in a dictionary are int64 and float32, NumPy's have their own type. `types`
    has the types, by index, of inputs whose values do not determine them: `{0: SequenceType(DType.FLOAT32, None)}` for an empty
    list, `{0: OptionalType(DType.FLOAT32, None)}` for an optional, which may be None.
    """

    name: str
    op: Operator
    inputs: tuple[Value, ...]
    expected: tuple[Value, ...]
    rtol: float = 1e-5
    atol: float = 1e-6
    constants: tuple[int, ...] = ()
    types: Mapping[int, TensorType] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """The data type of the first input that is present, or of the first output."""
        given = next((t for t in self.input_types() if t is not None), None)
        return (given or _type_of(self.expected[0])).dtype.value

    def input_types(self) -> tuple[TensorType | None, ...]:
        """The type of each input, with the content of constants; None for those left out.

        Raises `UsageError` for a value that is none, or that does not determine its type.
        """
        return tuple(self._input_type(index, value) for index, value in enumerate(self.inputs))

    def model(self) -> Model:
        """The case as a model of one node, with inputs `x0`, `x1`, ... and outputs `y0`, `y1`, ..."""
        given = {f"x{i}": t for i, t in enumerate(self.input_types()) if t is not None and i not in self.constants}
        g = GraphBuilder(outer=given)
        names = [f"x{i}" if f"x{i}" in given else self._constant(g, i) for i in range(len(self.inputs))]
        outputs = [f"y{index}" for index in range(len(self.expected))]
        g.node(self.op, *names, outputs=outputs, name=self.op.stem)
        return Model(g.graph(outputs, self.name).replace(inputs=tuple(given)), source=f"<{self.name}>")

    def feeds(self) -> dict[str, Any]:
        """The values for the inputs of `model()`."""
        given = ((i, v) for i, v in enumerate(self.inputs) if i not in self.constants)
        return {f"x{i}": value for i, value in given if value is not None or i in self.types}

    def _constant(self, g: GraphBuilder, index: int) -> str:
        value = self.inputs[index]
        if value is None:
            return ""
        if not isinstance(value, np.ndarray | np.generic):
            raise UsageError(f"case {self.name!r}: input {index} is {_kind(value)}; accepted as a constant: an array")
        return g.constant(value, name=f"x{index}")

    def _input_type(self, index: int, value: Value) -> TensorType | None:
        if index in self.types:
            return self.types[index]
        if value is None:
            return None
        if isinstance(value, np.ndarray | np.generic):
            return TensorType.of(np.asarray(value), known=index in self.constants)
        try:
            return _type_of(value)
        except (ValueError, AttributeError):
            raise UsageError(
                f"case {self.name!r}: input {index} is {value!r:.60}, which does not determine its type",
                hint=f"accepted: arrays, lists of arrays or dictionaries, dictionaries; or give it: types={{{index}: ...}}",
            ) from None


def _type_of(value: Any) -> TensorType:
    """The type of a value that determines it. Raises `ValueError` for an empty one, `AttributeError` for what is not a value."""
    if isinstance(value, dict):
        (key, plain), *_ = value.items()
        return MapType(_element_type(plain), None, keys=_element_type(key))
    if isinstance(value, list):
        first, *_ = value
        item = _type_of(first)
        return SequenceType(item.dtype, None, keys=item.keys if isinstance(item, MapType) else None)
    return TensorType(DType.of(value.dtype), value.shape)


def _element_type(plain: Any) -> DType:
    known = {str: DType.STRING, int: DType.INT64, float: DType.FLOAT32}
    return known.get(type(plain)) or DType.of(np.asarray(plain).dtype)


def fits_type(value: Any, expected: TensorType) -> bool:
    """Whether the value is of that type; dimensions that the type leaves open may have any size."""
    if isinstance(expected, SequenceType):
        return isinstance(value, list) and all(fits_type(item, expected.items) for item in value)
    if isinstance(expected, MapType):
        return isinstance(value, dict) and (not value or _type_of(value) == expected)
    if isinstance(expected, OptionalType):
        empty = isinstance(value, list | dict) and not value
        return value is None or empty or _type_of(value).dtype is expected.dtype
    if not isinstance(value, np.ndarray | np.generic):
        return False
    return DType.of(value.dtype) is expected.dtype and _fits_shape(value.shape, expected.shape)


def _fits_shape(found: tuple[int, ...], expected: Shape | None) -> bool:
    if expected is None:
        return True
    sizes = zip(found, expected, strict=True)
    return len(found) == len(expected) and all(got == want for got, want in sizes if isinstance(want, int))


def type_text(value: Any) -> str:
    """The type of a value for messages."""
    return _kind(value) if value is None or (isinstance(value, list | dict) and not value) else str(_type_of(value))


def each_array(function: Callable[[NDArray[Any]], NDArray[Any]], value: Any) -> Any:
    """The value with `function` applied to each of its arrays; lists and dictionaries are copied."""
    if isinstance(value, list):
        return [each_array(function, item) for item in value]
    return dict(value) if isinstance(value, dict) else None if value is None else function(np.asarray(value))


def passed(case: Case, outputs: Sequence[Any]) -> str:
    """An empty string when `outputs` are those expected, else what differs first."""
    pairs = enumerate(zip(outputs, case.expected, strict=True))
    return next(filter(None, (_differs(case, f"output {index}", got, want) for index, (got, want) in pairs)), "")


def _differs(case: Case, where: str, got: Any, want: Any) -> str:
    if _kind(got) != _kind(want):
        return f"{where} is {_kind(got)}, expected {_kind(want)}"
    if want is None:
        return ""
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{where} is a sequence of {len(got)}, expected {len(want)}"
        pairs = ((f"{where}, element {i},", g, w) for i, (g, w) in enumerate(zip(got, want, strict=True)))
        return next(filter(None, (_differs(case, *pair) for pair in pairs)), "")
    if isinstance(want, dict):
        return _map_differs(case, where, got, want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{where} is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    exact = want.dtype.kind not in "fc" and want.dtype.name != "bfloat16"
    wide_got, wide_want = (got, want) if exact else (got.astype(np.float64), want.astype(np.float64))
    fits = wide_got == wide_want if exact else np.isclose(wide_got, wide_want, rtol=case.rtol, atol=case.atol, equal_nan=True)
    if not np.all(fits):
        worst = tuple(int(i) for i in np.argwhere(~np.atleast_1d(fits))[0])
        return f"{where} at {worst}: {np.atleast_1d(got)[worst]!r}, expected {np.atleast_1d(want)[worst]!r}"
    return ""


def _map_differs(case: Case, where: str, got: Mapping[Any, Any], want: Mapping[Any, Any]) -> str:
    if got.keys() != want.keys():
        return f"{where} has the keys {[*got]!r:.80}, expected {[*want]!r:.80}"
    if got and _type_of(got) != _type_of(want):
        return f"{where} is {_type_of(got)}, expected {_type_of(want)}"
    pairs = ((key, *(np.asarray(m[key], _element_type(want[key]).numpy) for m in (got, want))) for key in want)
    wrong = (key for key, g, w in pairs if _differs(case, "", g, w))
    return next((f"{where} at {key!r}: {got[key]!r}, expected {want[key]!r}" for key in wrong), "")


def _kind(value: Any) -> str:
    names = {list: "a sequence", dict: "a map", type(None): "absent"}
    return names.get(type(value)) or ("an array" if isinstance(value, np.ndarray | np.generic) else type(value).__name__)
