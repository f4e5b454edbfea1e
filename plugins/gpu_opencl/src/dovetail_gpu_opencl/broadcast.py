"""Which element of an operand belongs to an element of the result, as C expressions over the flat index of the result."""

import re
from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.device import TensorType
from dovetail_gpu_opencl.source import loaded, vector_at

__all__ = ["Access", "access_to", "flat_index", "strides_of"]


@dataclass(frozen=True, slots=True)
class Access:
    """How to read an operand.

    `index` is the C expression of its element for the result's element `o`. `run` says what `VEC` consecutive elements of
    the result meet: `same` (one element for all), `next` (as many consecutive ones) or `any`.
    """

    index: str
    run: str

    def load(self, pointer: str, c_type: str, acc: str, vec: int, *, aligned: bool = False) -> str:
        """The operand, whose elements are of `c_type`, as an expression of C type `acc`, or `acc<vec>` for a vector.

        `aligned` says that vectors of the result begin at multiples of their size, so that those of operands do; halves.cl is
        in the program.
        """
        at = self.index
        if vec == 1:
            return f"({acc}){loaded(c_type, pointer, at)}"
        if self.run == "same":
            return f"({acc}{vec})(({acc}){loaded(c_type, pointer, at)})"
        if self.run == "next" and aligned and c_type in ("half", "float"):
            at = f"{pointer} + ({at})"
            return f"load_half{vec}({at})" if c_type == "half" else f"(*(__global const float{vec}*)({at}))"
        if self.run == "next" and c_type == "half":
            return f"convert_{acc}{vec}(vload_half{vec}(0, {pointer} + ({at})))"
        if self.run == "next" and not c_type.startswith("bfloat"):
            return f"convert_{acc}{vec}({vector_at(c_type, vec, f'{pointer} + ({at})')})"
        parts = ", ".join(f"({acc}){loaded(c_type, pointer, _shifted(at, i))}" for i in range(vec))
        return f"({acc}{vec})({parts})"


def access_to(operand: TensorType, result: TensorType, run_axes: int = 1) -> Access | None:
    """How to read `operand` for an element of `result`; None when it does not broadcast to it."""
    dims, target = operand.dims, result.dims
    if len(dims) > len(target) and any(d != 1 for d in dims[: len(dims) - len(target)]):
        return None
    aligned = (1,) * (len(target) - len(dims)) + dims[max(0, len(dims) - len(target)) :]
    if any(d not in (1, t) for d, t in zip(aligned, target, strict=True)):
        return None
    strides = [0 if d == 1 else s for d, s in zip(aligned, strides_of(aligned), strict=True)]
    return Access(flat_index(target, strides), _run(aligned[-run_axes:], target[-run_axes:]))


def strides_of(dims: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    found, step = [], 1
    for size in reversed(dims):
        found.append(step)
        step *= size
    return tuple(reversed(found))


def flat_index(dims: Sequence[int], strides: Sequence[int], name: str = "o") -> str:
    """The C expression for sum(coordinate * stride), with the coordinates of the flat row-major index `name` in `dims`."""
    inner, terms = 1, []
    for size, stride in reversed(_merged(dims, strides)):
        terms.append((inner, size, stride))
        inner *= size
    outermost = inner
    parts = [_term(name, step, size, stride, step * size == outermost) for step, size, stride in terms if stride]
    return " + ".join(reversed(parts)) or "0"


def _merged(dims: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Axes as (size, stride), with contiguous ones joined."""
    joined: list[tuple[int, int]] = []
    for size, stride in zip(dims, strides, strict=True):
        if size == 1:
            continue
        if joined and joined[-1][1] == stride * size:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return joined


def _term(name: str, step: int, size: int, stride: int, is_outermost: bool) -> str:
    coordinate = name if step == 1 else f"({name} / {step})"
    coordinate = coordinate if is_outermost else f"({coordinate} % {size})"
    return coordinate if stride == 1 else f"{coordinate} * {stride}"


def _run(operand: Sequence[int], target: Sequence[int]) -> str:
    if all(d == 1 for d in operand):
        return "same"
    return "next" if tuple(operand) == tuple(target) else "any"


def _shifted(index: str, by: int) -> str:
    return re.sub(r"\bo\b", f"(o + {by})", index) if by else index
