"""Device kernels that an operator has as data, so that an op pack imports no device package."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.dataclass import dataclass, field
from dovetail.errors import OperatorError, UsageError, did_you_mean
from dovetail.graph.dtype import DType
from dovetail.graph.graph import KernelSource
from dovetail.graph.layout import ANY, Layout
from dovetail.graph.types import TensorType
from dovetail.operators.formula import Formula, dimensions

Types = Sequence[TensorType | None]
# Functions of kernels get None for inputs that are left out. They are declared for those without, for which type checkers accept
# `inputs[0].dims`, and one that is annotated with `TensorType | None` fits as well.
Given = Sequence[TensorType]
WorkSize = Callable[[Given, Given], tuple[int, ...]]
"""Work size from input and output types: one to three positive numbers."""

SCALAR_TYPES = ("float", "int", "uint")
LAYOUTS = ("BFYX", "BYXF", "YXFB", "FYXB", "ANY")
IMAGE_KINDS = ("image2d_t", "image2d_array_t")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCLKernel(KernelSource):
    """An OpenCL C kernel (1.2). Arguments: inputs, outputs, scratch buffers (all `__global` pointers or images), then scalars.

    There is an argument for each port: an input or output that the node leaves out is NULL (`if (bias) ...`), a variadic port
    has as many arguments as the node gives. An operator may bring several kernels; the first that device and node allow is
    used. What a device does not allow (a data type, an image, a local size) it refuses with the reason.

    `source` is the text (`OpenCLKernel.text_of(__package__, "file.cl")` reads a file of the package). `entry` is the kernel
    function, or a function for each data type of the first input (`{"float32": "hswish_f32"}`); a node of a data type that is
    not listed is refused. `scalars` are `(attribute, C type)` pairs in argument order, with the C types float, int and uint.
    `options` go to the compiler as they are; `defines` become `#define` lines, given as a mapping or as a function of operator,
    input types and output types. Values are numbers and text; bools become 1 and 0, floats literals of C (double ones).

    The functions may raise `KernelRefused("axis is 0; accepted: the last one")`: the next kernel is asked, as for a data type
    without an entry. `extensions` are those that the device must have, such as `cl_khr_subgroups`.

    `global_size` is the NDRange: formulas (`("X", "Y", "B*F")`, see `dovetail.op.Formula`) or a function of input and output
    types; the default is one work item for each element of output 0. `local_size` likewise; None leaves it to the driver.
    Formulas take B, F, Y, X from `dim`: `output` (0), or `input,N`. Where all outputs are empty nothing is launched.

    `layouts` maps port names to the memory layout that the kernel wants there (`{"X": "BYXF", "Y": "BYXF"}`, or `ANY`:
    whichever, the same for all ports so marked); ports not named are plain. Formulas and types see the operator's own order of
    dimensions in any layout.

    `images` maps port names to `image2d_array_t` or `image2d_t`, with one float32 or float16 in the channel R. As the value
    lies in memory, the last dimension is the width; the one before is an array's height and all others its slices, or all
    others are the height of an image2d_t. `scratch` gives the bytes of work buffers, uninitialised at every run: formulas or
    functions of input and output types.
    """

    language: ClassVar[str] = "opencl"

    source: str
    entry: str | Mapping[str, str] | Mapping[DType, str]
    scalars: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    defines: Mapping[str, Any] | Callable[[Any, Given, Given], Mapping[str, Any]] = field(default_factory=dict)
    global_size: WorkSize | tuple[str, ...] | None = None
    local_size: WorkSize | tuple[str, ...] | tuple[int, ...] | None = None
    dim: str = "output"
    layouts: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str | Callable[[Given, Given], int], ...] = ()
    origin: str = "<kernel source>"

    def __post_init__(self) -> None:
        self._take_tuples()
        object.__setattr__(self, "entry", _by_dtype(self.origin, self.entry))
        for attribute, c_type in self.scalars:
            if c_type not in SCALAR_TYPES:
                accepted = ", ".join(SCALAR_TYPES)
                raise OperatorError(f"{self.origin}: scalar {attribute!r} has type {c_type!r}; accepted: {accepted}")
        for port, kind in self.images.items():
            if kind not in IMAGE_KINDS:
                raise OperatorError(f"{self.origin}: image {port!r} is {kind!r}; accepted: {', '.join(IMAGE_KINDS)}")
        for port, name in self.layouts.items():
            layout = Layout.of(name)
            if layout != ANY and not layout.is_permutation and not layout.block:
                message = f"{self.origin}: the layout of {port!r} is {name!r}; accepted: {', '.join(LAYOUTS)}"
                raise OperatorError(message, hint=did_you_mean(name, LAYOUTS))
        for text in self._formulas():
            try:
                Formula.parse(text)
            except UsageError as error:
                raise OperatorError(f"{self.origin}: {error.message}", hint=error.hint) from None
        _dim_index(self.dim, self.origin)

    def _take_tuples(self) -> None:
        """Lists become tuples. Raises `OperatorError` for one value without a tuple."""
        for name in ("scalars", "options", "extensions", "global_size", "local_size", "scratch"):
            given = getattr(self, name)
            if isinstance(given, list):
                object.__setattr__(self, name, tuple(given))
            elif not (isinstance(given, tuple) or (name.endswith("_size") and (given is None or callable(given)))):
                raise OperatorError(f"{self.origin}: {name} is {given!r}; accepted: a tuple", hint=f"write {name}=({given!r},)")
        for size in (self.global_size, self.local_size):
            if isinstance(size, tuple) and not 1 <= len(size) <= 3:
                raise OperatorError(f"{self.origin}: {size!r} has {len(size)} work sizes; accepted: one to three")

    def _formulas(self) -> list[str]:
        sizes = [*_as_tuple(self.global_size), *_as_tuple(self.local_size), *self.scratch]
        return [size for size in sizes if isinstance(size, str)]

    @staticmethod
    def text_of(package: str | None, name: str) -> str:
        """The text of a file in an installed package, such as `__package__`. Raises `OperatorError` when it is not there."""
        from importlib import resources  # here, because it imports zipfile and tempfile, and few packs have such files

        try:
            if not package:
                raise ModuleNotFoundError("no package is named")
            return resources.files(package).joinpath(name).read_text("utf-8")
        except (OSError, ModuleNotFoundError) as error:
            raise OperatorError(f"the kernel file {name!r} of {package} cannot be read: {error}") from None

    def entry_for(self, dtype: DType) -> str | None:
        """The kernel function for a data type of the first input; None without one."""
        entry: Any = self.entry  # by name since the constructor
        return entry if isinstance(entry, str) else entry.get(dtype.value)

    def layout_of(self, port: str) -> Layout:
        """The layout that the kernel wants at a port."""
        return Layout.of(self.layouts.get(port, "PLAIN"))

    def work_sizes(self, inputs: Types, outputs: Sequence[TensorType]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Global and local size for these types. Raises `UsageError` for sizes that are not positive, or not one to three."""
        if self.global_size is None:
            global_size: tuple[int, ...] = (outputs[0].size,)
        else:
            global_size = self._size(self.global_size, inputs, outputs)
        local_size = None if self.local_size is None else self._size(self.local_size, inputs, outputs)
        # Without elements there is nothing to launch, whatever the formulas say.
        if all(t.size == 0 for t in outputs):
            return (0,), None
        _check_sizes(self.origin, global_size, local_size)
        return global_size, local_size

    def scratch_bytes(self, inputs: Types, outputs: Sequence[TensorType]) -> tuple[int, ...]:
        """Bytes of each scratch buffer. Raises `UsageError` for a size that is not positive."""
        sizes = tuple(self._one(s, inputs, outputs) if isinstance(s, str) else s(_given(inputs), outputs) for s in self.scratch)
        for size in sizes:
            if size < 1:
                raise UsageError(f"{self.origin}: a scratch buffer has {size} bytes; accepted: 1 or more")
        return sizes

    def define_lines(self, op: Any, inputs: Types, outputs: Sequence[TensorType]) -> str:
        """The `#define` lines for a node."""
        defines = self.defines(op, _given(inputs), outputs) if callable(self.defines) else self.defines
        if not isinstance(defines, Mapping):
            raise OperatorError(f"{self.origin}: defines gave {defines!r}; accepted: a mapping of names to numbers and text")
        return "".join(f"#define {name} {_literal(self.origin, name, value)}\n" for name, value in defines.items())

    def _size(self, size: Any, inputs: Types, outputs: Sequence[TensorType]) -> tuple[int, ...]:
        if callable(size):
            given = size(_given(inputs), outputs)
            try:
                return tuple(operator.index(one) for one in given)
            except TypeError:
                hint = "write (n,) for one dimension, and // to divide"
                message = f"{self.origin}: the work size is {given!r}; accepted: a tuple of one to three whole numbers"
                raise UsageError(message, hint=hint) from None
        return tuple(one if isinstance(one, int) else self._one(one, inputs, outputs) for one in size)

    def _one(self, text: str, inputs: Types, outputs: Sequence[TensorType]) -> int:
        index = _dim_index(self.dim, self.origin)
        tensor = outputs[0] if index is None else (inputs[index] if index < len(inputs) else None)
        if tensor is None:
            raise UsageError(f"{self.origin}: dim is {self.dim!r}, but the node has no such input")
        return Formula.parse(text).evaluate(dimensions(tensor.dims))


def _given(inputs: Types) -> Given:
    return inputs  # type: ignore[return-value]  # see `Given`


def _by_dtype(origin: str, entry: str | Mapping[Any, str]) -> str | Mapping[str, str]:
    """The functions by the names of data types, for keys that are names or `DType`s."""
    if isinstance(entry, str):
        return entry
    try:
        return {DType.of(dtype).value: name for dtype, name in entry.items()}
    except UsageError as error:
        raise OperatorError(f"{origin}: entry: {error.message}", hint=error.hint) from None


def _literal(origin: str, name: str, value: Any) -> str:
    """A number or text in OpenCL C."""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
    if isinstance(value, (str, int, float, np.integer, np.floating)):
        return str(value)
    raise OperatorError(f"{origin}: defines gave {name} = {value!r} ({type(value).__name__}); accepted: numbers, bools and text")


def _as_tuple(size: Any) -> tuple[Any, ...]:
    return size if isinstance(size, tuple) else ()


def _dim_index(dim: str, origin: str) -> int | None:
    word, _, number = dim.replace(" ", ",").partition(",")
    if word == "output" and not number:
        return None
    if word == "input" and (not number or number.isdigit()):
        return int(number or 0)
    raise OperatorError(f"{origin}: dim is {dim!r}; accepted: 'output', 'input' or 'input,N'")


def _check_sizes(origin: str, global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
    for size in (global_size, local_size or (1,)):
        if not 1 <= len(size) <= 3 or any(n < 1 for n in size):
            raise UsageError(f"{origin}: the work size is {size}; accepted: one to three positive numbers")
    if local_size is not None and len(local_size) != len(global_size):
        raise UsageError(f"{origin}: the local size {local_size} does not fit the global size {global_size}")
    if local_size is not None and any(g % n for g, n in zip(global_size, local_size, strict=True)):
        raise UsageError(f"{origin}: the global size {global_size} is not a multiple of the local size {local_size}")
