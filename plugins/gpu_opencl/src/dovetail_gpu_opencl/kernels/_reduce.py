"""Reductions, and pooling over whole planes: what is done to each element, how two are joined, what is done at the end."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import flat_index, strides_of
from dovetail_gpu_opencl.formulas import Formula
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, group_size, spread
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble, storage

__all__ = ["GlobalPool", "Reduce"]


@runtime_checkable
class _Reduction(Protocol):
    """The common attributes of the operators ReduceL1 to ReduceSumSquare."""

    def reduced_axes(self, rank: int, axes: NDArray[Any] | None) -> tuple[int, ...]:
        """The axes to reduce, counted from the front, in order."""


_STRIP = 32
"""Neighbouring results that a work item of a CPU computes."""


class Reduce(CLKernel):
    """reduce.cl, or on CPUs reduce_columns.cl where neighbouring elements go into neighbouring results.

    `element` is C over x, `join` over a and b, `end` over a, with COUNT elements; `start` the value of none.
    `integers` says how these are computed: `exact` in 64 bits, where sums wrap as those of their own width do, because the result
    is cut to it, with `whole_end` in place of `end`; or in `double`, truncated, out of range to the nearest bound.
    """

    name = "reduce"
    by_content = False
    halves_by_load = True
    mixes = True
    dtypes: ClassVar = frozenset(C_TYPES)

    def __init__(
        self,
        join: str,
        start: str,
        element: str = "x",
        end: str = "a",
        *,
        integers: str = "exact",
        whole_end: str = "a",
        shifted: bool = False,
    ) -> None:
        self._join, self._start, self._element, self._end, self._shifted = join, start, element, end, shifted
        self._integers, self._whole_end = integers, whole_end

    def check(self, node: TypedNode) -> Refusal | None:
        if self._in_double(node) and not self.caps.fp64:
            return Refusal(Reason.CAPABILITY, f"{node.outputs[0].dtype} needs cl_khr_fp64 here")
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        unknown = axes is not None and axes.value is None and axes.size > 0
        return Refusal(Reason.DYNAMIC, "axes are not constant") if unknown else None

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def axes(self, node: TypedNode) -> Sequence[int]:
        """The axes that are reduced."""
        assert isinstance(node.op, _Reduction)
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        return node.op.reduced_axes(node.given(0).rank, None if axes is None else axes.value)

    def loads_computed(self, node: TypedNode) -> bool:
        return True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return (self.launch(node),)

    def launch(self, node: TypedNode, computed: Formula | None = None) -> Launch:
        """The launch, with input 0 computed where it is loaded if there is a formula."""
        src, dst, reduced = node.given(0), node.outputs[0], set(self.axes(node))
        kept = [axis for axis in range(src.rank) if axis not in reduced]
        gone = [axis for axis in range(src.rank) if axis in reduced]
        count, inner = math.prod(src.dims[axis] for axis in gone), math.prod(src.dims[gone[-1] + 1 :]) if gone else 1
        sizes, steps = RuntimeSizes(), strides_of(src.dims)

        def index(axes: Sequence[int], name: str) -> str:
            dims, strides = [src.dims[axis] for axis in axes], [steps[axis] for axis in axes]
            return f"({flat_index(dims, strides, name, sizes, None, axes, src.rank)})"

        defines: dict[str, object] = {
            **storage(src.dtype),
            **storage(dst.dtype, "R"),
            **self._arithmetic(node),
            "COUNT": sizes.number(count, "count"),
            "AT(r)": index(gone, "(r)"),
            "ELEMENT(x)": f"({self._element})",
            "JOIN(a, b)": f"({self._join})",
            "START": self.start(dst.dtype),
        }
        entry = "reduce"
        if self.caps.kind == "CPU" and gone and gone[-1] < src.rank - 1 and not self._shifted:
            entry, rows = "reduce_columns", dst.size // max(1, inner)
            kept = [axis for axis in kept if axis < gone[-1]]
            defines |= {"ROWS": sizes.number(rows, "rows"), "INNER": sizes.number(inner, "inner"), "STRIP": _STRIP}
            work, local = spread(rows * ceil_div(inner, _STRIP), self.caps, 1)
        else:
            group = group_size(self.caps, 128) if self.caps.kind == "GPU" and count >= 64 else 1
            group = self.packed.settled(self.name, node, group)
            defines |= {"SIZE": sizes.number(dst.size, "size"), "GROUP": group, "SHIFTED": self._shifted}
            work, local = ((dst.size * group,), (group,)) if group > 1 else spread(dst.size, self.caps, 16)
        defines |= {"BASE(o)": index(kept, "(o)"), "SIZES": sizes.parameters}
        read: tuple[Argument, ...] = (Read(node.node.inputs[0]),)
        if computed is not None:
            defines |= computed.defines
            read = computed.arguments
        chain = post_ops.epilogue(node)
        arguments = (*read, Write(node.node.outputs[0]), *sizes.arguments, *chain.arguments)
        source = assemble(f"{entry}.cl", defines, "" if computed is None else computed.source, chain.source)
        return Launch(f"{entry}.cl", source, entry, arguments, work, local)

    def _in_double(self, node: TypedNode) -> bool:
        return self._integers == "double" and not node.outputs[0].dtype.is_float

    def _arithmetic(self, node: TypedNode) -> dict[str, object]:
        dtype = node.outputs[0].dtype
        if not self._in_double(node):
            return {"ACC": accumulator(dtype), "END(a)": f"({self._end if dtype.is_float else self._whole_end})"}
        cut = f"((p)[i] = (v) != (v) ? 0 : convert_{C_TYPES[dtype]}_sat_rtz(v))"
        return {"ACC": "double", "END(a)": f"({self._end})", "STORE_R(p, i, v)": cut}

    def start(self, dtype: DType) -> str:
        """The value of no elements."""
        if self._start not in ("lowest", "highest"):
            return self._start
        sign = "-" if self._start == "lowest" else ""
        if dtype.is_float:
            return f"{sign}INFINITY"
        if dtype is DType.BOOL:
            return "0" if sign else "1"
        bits = 8 * dtype.itemsize
        if not dtype.is_signed:
            return "0" if sign else f"{2**bits - 1}UL"
        return f"(-{2 ** (bits - 1) - 1}L - 1)" if sign else f"{2 ** (bits - 1) - 1}L"


class GlobalPool(Reduce):
    """A reduction over all spatial axes."""

    def check(self, node: TypedNode) -> Refusal | None:
        return None if node.outputs[0].dtype.is_float else Refusal(Reason.DTYPE, f"{node.outputs[0].dtype}")

    def axes(self, node: TypedNode) -> Sequence[int]:
        return range(2, node.given(0).rank)
