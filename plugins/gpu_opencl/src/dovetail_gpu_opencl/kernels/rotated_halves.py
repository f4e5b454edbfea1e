"""RotatedHalves: rotated_halves.cl."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._rotated_halves import RANK
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["KERNELS"]


class RotatedHalvesKernel(CLKernel):
    """An element a work item; each value has a type of its own."""

    name = "rotated_halves"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16})
    has_epilogue = False
    half_by_load = True
    bfloat16_by_load = True
    mixes = True

    def check(self, node: TypedNode) -> Refusal | None:
        x, *factors = (node.given(i) for i in range(3))
        if x.rank > RANK:
            return Refusal(Reason.SHAPE, f"{x}; accepted: up to {RANK} dimensions")
        for factor in factors:
            own = factor.dims[::-1]
            if len(own) > x.rank or any(n not in (1, whole) for n, whole in zip(own, x.dims[::-1], strict=False)):
                return Refusal(Reason.SHAPE, f"{factor} does not broadcast to {x}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, dst = node.given(0), node.outputs[0]
        if not dst.size:
            return ()
        dims = (*(1,) * (RANK - x.rank), *x.dims)
        defines: dict[str, object] = {**storage(dst.dtype), "WIDTH": dims[-1]}
        for i, name in enumerate("XCS"):
            defines |= storage(node.given(i).dtype, name)
        steps = [number for i in (1, 2) for number in _steps(node.given(i).dims)]
        arguments: tuple[Argument, ...] = (
            *map(Read, node.node.inputs),
            Write(node.node.outputs[0]),
            *ints(dst.size, *dims[1:3], *steps),
        )
        work, local = spread(dst.size, self.caps)
        return (Launch("rotated_halves.cl", assemble("rotated_halves.cl", defines), self.name, arguments, work, local),)


def _steps(dims: tuple[int, ...]) -> tuple[int, ...]:
    """By how many elements each axis of four steps in a value that is broadcast."""
    found, step = [0] * RANK, 1
    for axis, size in zip(reversed(range(RANK)), reversed(dims), strict=False):
        found[axis] = step if size != 1 else 0
        step *= size
    return tuple(found)


KERNELS = (RotatedHalvesKernel(),)
