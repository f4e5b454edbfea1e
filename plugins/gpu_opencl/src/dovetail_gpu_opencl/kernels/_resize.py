"""Resize and Upsample: for each axis a table of the input elements that an output element is made of, and of their weights."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import NHWC, PLAIN, DType, LayerConfig, Reason, Refusal, TypedNode, padded
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble, storage
from dovetail_ops_onnx.resize import Resize, Resize_10
from dovetail_ops_onnx.upsample import Upsample

__all__ = ["RESIZE"]

_TAPS, _DIVISORS = ("TZ", "TY", "TX"), ("OZ", "OY", "OX", "INNER")
_NUMBERS = ("OUTER", "IZ", "IY", "IX", *_DIVISORS, *_TAPS)
"""The sizes of the source and of the result, of the axes before and after, and the taps of an element along each axis."""
_FEW = 4
_EACH = 4
"""Neighbours that a work item of a GPU computes where the axes after the resampled ones have so many. On an H100 128 channels of
384 x 384 pixels take 163 us one by one."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One axis: `index` [out, taps], -1 in the first tap where the output is outside; `weights` [out, taps], None for ones."""

    size: int
    index: NDArray[np.int32]
    weights: NDArray[np.floating[Any]] | None

    @staticmethod
    def kept(size: int) -> "_Line":
        """An axis that is not resampled."""
        return _Line(size, np.arange(size, dtype=np.int32)[:, None], None)

    @staticmethod
    def of(node: TypedNode, axis: Any) -> "_Line":
        """A resampled axis, by the operator's own arithmetic."""
        sampling = _op(node).sampling
        index, weights = sampling.taps(axis)
        places = index.astype(np.int32)
        if sampling.coordinate == "tf_crop_and_resize":  # no other has places outside
            places[sampling.outside(axis), 0] = -1
        return _Line(axis.size, places, weights)


class _Resize(CLKernel):
    """The base of both kernels: up to three neighbouring axes; the axes before and after them count as one each."""

    def check(self, node: TypedNode) -> Refusal | None:
        if any(t is not None and t.value is None and t.size for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "roi, scales or sizes are not constant")
        first, last = _span(node)
        if last - first > MAX_SPATIAL:
            return Refusal(Reason.SHAPE, f"axes {first} to {last - 1} are resampled; accepted: {MAX_SPATIAL} neighbouring ones")
        return self.suits(node)

    @abstractmethod
    def suits(self, node: TypedNode) -> Refusal | None:
        """Whether the mode is this kernel's."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        plain, result, rest = LayerConfig.uniform(node, PLAIN), node.outputs[0].dims, (PLAIN,) * (len(node.inputs) - 1)
        if len(result) < 3 or _span(node)[0] < 2:
            return (plain,)
        operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
        others = (operand for operand in node.operands if operand.dims != result)
        if not all(post_ops.lies_along(operand, node.outputs[0], NHWC) for operand in others):
            return (plain,)
        return (plain, LayerConfig((NHWC, *rest), (NHWC,), operands))

    def lines(self, node: TypedNode) -> tuple[list[_Line], dict[str, int]]:
        """The three axes, and the numbers of `_NUMBERS`."""
        src, axes = node.given(0), {a.axis: a for a in _plan(node)}
        first, last = (min(axes), max(axes) + 1) if axes else (0, 0)
        lines = [_Line.kept(1)] * (MAX_SPATIAL - (last - first))
        lines += [_Line.of(node, axes[i]) if i in axes else _Line.kept(src.dims[i]) for i in range(first, last)]
        shapes = [line.index.shape for line in lines]
        outer, inner = math.prod(src.dims[:first]), math.prod(src.dims[last:])
        if src.layout != PLAIN:
            outer, inner = outer // src.dims[1], inner * src.dims[1]
        sizes = (outer, *(line.size for line in lines), *(s[0] for s in shapes), inner, *(s[1] for s in shapes))
        return lines, dict(zip(_NUMBERS, sizes, strict=True))


class Nearest(_Resize):
    """Moves elements of any type: resize_nearest.cl, and for CPUs resize_nearest_rows.cl."""

    name = "resize_nearest"
    dtypes = MOVABLE
    computes = False
    has_epilogue = False

    def suits(self, node: TypedNode) -> Refusal | None:
        mode = _op(node).sampling.mode
        return None if mode == "nearest" else Refusal(Reason.ATTRIBUTE, f"mode {mode}")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        lines, numbers = self.lines(node)
        width = self._width(node, numbers["INNER"])
        numbers["INNER"] //= width
        fill = Constant(np.full(width, _op(node).sampling.extrapolation).astype(dst.dtype.numpy))
        index = _joined([line.index for line in lines])
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), index, fill, Write(node.node.outputs[0]))
        entry, (work, local) = self.name, spread(dst.size // width, self.caps)
        defines, sizes = by_value({"T": WORDS[dst.dtype.itemsize * width], **numbers}, _NUMBERS, _DIVISORS)
        if self.caps.kind == "CPU":
            entry, work, local = "resize_nearest_rows", (numbers["OY"], numbers["OZ"], numbers["OUTER"]), (1, 1, 1)
        source = assemble(f"{entry}.cl", defines)
        return (Launch(f"{entry}.cl", source, entry, (*arguments, *sizes), work, local),) if dst.size else ()

    def _width(self, node: TypedNode, inner: int) -> int:
        """The elements of a word: on GPUs as many as are together on both sides, in all sizes that have the program."""
        if self.caps.kind == "CPU":
            return 1
        size = node.outputs[0].dtype.itemsize
        most = max(w for w in (1, 2, 4, 8, 16) if inner % w == 0 and size * w <= max(WORDS))
        return self.packed.settled(self.name, node, most, lambda built: inner % built == 0)


class Weighted(_Resize):
    """resize.cl, on CPUs resize_rows.cl: linear and cubic, in float; float64 and integers in double, and these are cut off."""

    name = "resize"
    dtypes = frozenset(C_TYPES) - {DType.BOOL}
    halves_by_load = True

    def suits(self, node: TypedNode) -> Refusal | None:
        mode = _op(node).sampling.mode
        if mode == "nearest":
            return Refusal(Reason.ATTRIBUTE, f"mode {mode}")
        lacks = self._acc(node) == "double" and not self.caps.fp64
        return Refusal(Reason.CAPABILITY, f"{node.outputs[0].dtype} needs cl_khr_fp64 here") if lacks else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst, acc = node.outputs[0], self._acc(node)
        lines, numbers = self.lines(node)
        real = np.float64 if acc == "double" else np.float32
        weights = [np.ones(line.index.shape, real) if line.weights is None else line.weights.astype(real) for line in lines]
        defines: dict[str, object] = {**storage(dst.dtype), "ACC": acc}
        if dst.dtype.is_integer:
            defines["STORE_T(p, i, v)"] = f"((p)[i] = convert_{C_TYPES[dst.dtype]}_sat_rtz(v))"
        chain = post_ops.epilogue(post_ops.in_memory_order(node))
        # Few taps, which other sizes have too, are constants: the loops over them are unrolled.
        few = max(numbers[name] for name in _TAPS) <= _FEW
        wide = few and self.caps.kind == "GPU" and numbers["INNER"] % _EACH == 0
        each = self.packed.settled(self.name, node, _EACH if wide else 1, lambda built: numbers["INNER"] % built == 0)
        numbers["INNER"] //= each
        runtime = [name for name in _NUMBERS if not few or name not in _TAPS]
        defines, sizes = by_value({**defines, **numbers, "EACH": each}, runtime, _DIVISORS)
        arguments = (
            Read(node.node.inputs[0]),
            _joined([line.index for line in lines]),
            _joined(weights),
            Constant(np.array([_op(node).sampling.extrapolation], real)),
            Write(node.node.outputs[0]),
            *sizes,
            *chain.arguments,
        )
        entry, (work, local) = self.name, spread(dst.size // each, self.caps)
        if self.caps.kind == "CPU":
            entry, work, local = "resize_rows", (numbers["OY"], numbers["OZ"], numbers["OUTER"]), (1, 1, 1)
        source = assemble(f"{entry}.cl", defines, chain.source)
        return (Launch(f"{entry}.cl", source, entry, arguments, work, local),) if dst.size else ()

    def _acc(self, node: TypedNode) -> str:
        return "float" if node.outputs[0].dtype in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16) else "double"


def _joined(tables: list[NDArray[Any]]) -> Constant:
    return Constant(np.concatenate([table.reshape(-1) for table in tables]))


def _op(node: TypedNode) -> Resize | Resize_10 | Upsample:
    assert isinstance(node.op, Resize | Resize_10 | Upsample)
    return node.op


def _plan(node: TypedNode) -> tuple[Any, ...]:
    """The axes to resample."""
    parameters: list[Any] = padded(node.inputs, node.op.inputs)[1:]
    return _op(node).plan(node.given(0), *parameters)


def _span(node: TypedNode) -> tuple[int, int]:
    """The first resampled axis, and the one after the last."""
    axes = [a.axis for a in _plan(node)]
    return (min(axes), max(axes) + 1) if axes else (0, 0)


RESIZE = (Nearest(), Weighted())
