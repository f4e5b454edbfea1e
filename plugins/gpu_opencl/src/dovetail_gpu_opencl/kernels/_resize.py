"""Resize and Upsample: for each axis a table of the input elements that an output element is made of, and of their weights."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TypedNode, padded
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scalar, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble, storage
from dovetail_ops_onnx.resize import Resize, Resize_10
from dovetail_ops_onnx.upsample import Upsample

__all__ = ["RESIZE"]


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

    def lines(self, node: TypedNode) -> tuple[list[_Line], tuple[Scalar, ...]]:
        """The three axes, and the arguments outer, iz, iy, ix, oz, oy, ox, inner, tz, ty, tx."""
        src, axes = node.given(0), {a.axis: a for a in _plan(node)}
        first, last = (min(axes), max(axes) + 1) if axes else (0, 0)
        lines = [_Line.kept(1)] * (MAX_SPATIAL - (last - first))
        lines += [_Line.of(node, axes[i]) if i in axes else _Line.kept(src.dims[i]) for i in range(first, last)]
        shapes = [line.index.shape for line in lines]
        outer, inner = math.prod(src.dims[:first]), math.prod(src.dims[last:])
        sizes = (outer, *(line.size for line in lines), *(s[0] for s in shapes), inner, *(s[1] for s in shapes))
        return lines, ints(*sizes)


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
        lines, sizes = self.lines(node)
        fill = Constant(np.array([_op(node).sampling.extrapolation]).astype(dst.dtype.numpy))
        index = _joined([line.index for line in lines])
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), index, fill, Write(node.node.outputs[0]), *sizes)
        entry, (work, local) = self.name, spread(dst.size, self.caps)
        if self.caps.kind == "CPU":
            _, y, z = (len(line.index) for line in lines[::-1])
            entry, work, local = "resize_nearest_rows", (y, z, int(sizes[0].value)), (1, 1, 1)
        source = assemble(f"{entry}.cl", {"T": WORDS[dst.dtype.itemsize]})
        return (Launch(f"{entry}.cl", source, entry, arguments, work, local),) if dst.size else ()


class Weighted(_Resize):
    """resize.cl: linear and cubic, in float; in double for float64 and for integers, which are cut off."""

    name = "resize"
    dtypes = frozenset(C_TYPES) - {DType.BOOL}
    half_by_load = True
    bfloat16_by_load = True

    def suits(self, node: TypedNode) -> Refusal | None:
        mode = _op(node).sampling.mode
        if mode == "nearest":
            return Refusal(Reason.ATTRIBUTE, f"mode {mode}")
        lacks = self._acc(node) == "double" and not self.caps.fp64
        return Refusal(Reason.CAPABILITY, f"{node.outputs[0].dtype} needs cl_khr_fp64 here") if lacks else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst, acc = node.outputs[0], self._acc(node)
        lines, sizes = self.lines(node)
        real = np.float64 if acc == "double" else np.float32
        weights = [np.ones(line.index.shape, real) if line.weights is None else line.weights.astype(real) for line in lines]
        defines = {**storage(dst.dtype), "ACC": acc}
        if dst.dtype.is_integer:
            defines["STORE_T(p, i, v)"] = f"((p)[i] = convert_{C_TYPES[dst.dtype]}_sat_rtz(v))"
        chain = post_ops.epilogue(node)
        arguments = (
            Read(node.node.inputs[0]),
            _joined([line.index for line in lines]),
            _joined(weights),
            Constant(np.array([_op(node).sampling.extrapolation], real)),
            Write(node.node.outputs[0]),
            *sizes,
            *chain.arguments,
        )
        work, local = spread(dst.size, self.caps)
        return (Launch("resize.cl", assemble("resize.cl", defines, chain.source), self.name, arguments, work, local),)

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
