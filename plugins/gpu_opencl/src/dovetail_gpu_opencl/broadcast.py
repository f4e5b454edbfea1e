"""Which element of an operand belongs to an element of the result, as C expressions over the flat index of the result."""

import math
import re
from collections.abc import Collection, Hashable, Sequence

from dovetail.dataclass import dataclass
from dovetail.device import TensorType
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import loaded, vector_at

__all__ = ["Access", "Moved", "access_to", "broadcasts", "flat_index", "operand_strides", "strides_of"]

_ALIGNED = {
    "half": "load_half{vec}({at})",
    "bfloat16": "load_bfloat{vec}({at})",
    "float": "(*(__global const float{vec}*)({at}))",
}
"""Aligned vectors, with halves.cl."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to read an operand.

    `index` is the C expression of its element for the result's element `o`. `run` says what `VEC` consecutive elements of
    the result meet: `same` (one element for all), `next` (as many consecutive ones) or `any`. Where `length` is not empty, they
    do so in runs of that many elements, a C expression, which a vector may leave.
    """

    index: str
    run: str
    length: str = ""

    def load(self, pointer: str, c_type: str, acc: str, vec: int, *, aligned: bool = False) -> str:
        """The operand, whose elements are of `c_type`, as an expression of C type `acc`, or `acc<vec>` for a vector.

        `aligned` says that vectors of the result begin at multiples of their size, so that those of operands do; halves.cl is
        in the program.
        """
        at = self.index
        if vec == 1:
            return f"({acc}){loaded(c_type, pointer, at)}"
        parts = ", ".join(f"({acc}){loaded(c_type, pointer, _shifted(at, i))}" for i in range(vec))
        if self.length and self.run != "any":
            # A vector is no longer than a run, and so leaves one at most once: its ends are as far apart as in a run only there.
            apart = f"{_shifted(at, vec - 1)} - ({at}) == {0 if self.run == 'same' else vec - 1}"
            within = Access(at, self.run).load(pointer, c_type, acc, vec)
            return f"({self.length} >= {vec} && {apart} ? {within} : ({acc}{vec})({parts}))"
        if self.run == "same":
            return f"({acc}{vec})(({acc}){loaded(c_type, pointer, at)})"
        if self.run == "next" and aligned and c_type in _ALIGNED:
            return _ALIGNED[c_type].format(at=f"{pointer} + ({at})", vec=vec)
        if self.run == "next" and c_type == "half":
            return f"convert_{acc}{vec}(vload_half{vec}(0, {pointer} + ({at})))"
        if self.run == "next" and not c_type.startswith("bfloat"):
            return f"convert_{acc}{vec}({vector_at(c_type, vec, f'{pointer} + ({at})')})"
        return f"({acc}{vec})({parts})"


@dataclass(frozen=True, slots=True)
class Moved:
    """An operand that is read from another value: element sum(i * stride) + offset of that for each i in `dims`, in order."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def access(self, sizes: RuntimeSizes, key: Hashable) -> Access:
        """How to read it; `key` names the operand."""
        terms = []
        for group in (groups := _merged(self.dims, self.strides)):
            after, at = math.prod(self.dims[group.last + 1 :]), (key, "moved", group.first)
            place = "o" if after == 1 else f"QUOTIENT(o, {sizes.divisor(after, (*at, 'after'))})"
            place = place if group is groups[0] else f"REMAINDER({place}, {sizes.divisor(group.size, (*at, 'size'))})"
            if group.stride:
                terms.append(place if group.stride == 1 else f"{place} * {sizes.number(group.stride, (*at, 'stride'))}")
        return Access(" + ".join([*terms, sizes.number(self.offset, (key, "moved", "offset"))]), "any")


def broadcasts(operand: TensorType, result: TensorType) -> bool:
    """Whether `access_to` reads `operand` for elements of `result`."""
    dims, target = operand.dims, result.dims
    if dims == target:
        return True
    more = max(0, len(dims) - len(target))
    return all(d == 1 for d in dims[:more]) and all(d in (1, t) for d, t in zip(dims[more:][::-1], target[::-1], strict=False))


def access_to(
    operand: TensorType, result: TensorType, run_axes: int = 1, sizes: RuntimeSizes | None = None, key: Hashable = None
) -> Access | None:
    """How to read `operand` for an element of `result`; None when it does not broadcast to it.

    Vectors do not leave the last `run_axes` axes, taken as one; with 0 they may. `sizes` collects the numbers of the index, as
    in `flat_index`; `key` names the operand there. Then other sizes have the same access, see `followed`.
    """
    if not broadcasts(operand, result):
        return None
    if sizes is None:
        return _fixed_access(operand.dims, result.dims, run_axes)
    axes = followed(operand, result.dims)
    if all(axes) or not any(axes):
        return Access("o", "next") if any(axes) else Access("0", "same")
    strides = operand_strides(operand, result.dims)
    index = flat_index(result.dims, strides, "o", sizes, key)
    if run_axes:
        run = axes[-run_axes:]
        return Access(index, "next" if all(run) else "any" if any(run) else "same")
    last = _joined(result.dims, strides)[-1]
    length = sizes.number(last.size, ("o", "length", last.first, last.last))
    return Access(index, "next" if last.stride else "same", length)


def _fixed_access(dims: tuple[int, ...], target: tuple[int, ...], run_axes: int) -> Access:
    if dims == target:
        return Access("o" if any(d > 1 for d in dims) else "0", _run(dims[-run_axes:], target[-run_axes:]))
    aligned = (1,) * (len(target) - len(dims)) + dims[max(0, len(dims) - len(target)) :]
    strides = [0 if d == 1 else s for d, s in zip(aligned, strides_of(aligned), strict=True)]
    return Access(flat_index(target, strides), _run(aligned[-run_axes:], target[-run_axes:]))


def followed(operand: TensorType, target: Sequence[int]) -> tuple[bool, ...]:
    """For each axis of `target` whether the operand has an element for each of its own there, or one for all.

    Where both have one element, a constant goes on having one in other sizes, and any other operand is taken to do as along the
    axis before, and to grow with the target along the first: so the answer is mostly that for other sizes, and programs are.
    """
    dims = operand.dims[max(0, len(operand.dims) - len(target)) :]
    found, latest = [], operand.value is None
    for own, size in zip(dims, target[len(target) - len(dims) :], strict=True):
        latest = own == size if max(own, size) > 1 or not own or not size else latest and operand.value is None
        found.append(latest)
    return (*(False,) * (len(target) - len(dims)), *found)


def operand_strides(operand: TensorType, target: Sequence[int]) -> tuple[int, ...]:
    """The strides of an operand along the axes of `target`, 0 along those where it has one element for all."""
    axes = followed(operand, target)
    steps = strides_of(operand.dims)[max(0, len(operand.dims) - len(target)) :]
    steps = (*(0,) * (len(target) - len(steps)), *steps)
    return tuple([step if moves else 0 for step, moves in zip(steps, axes, strict=True)])


def strides_of(dims: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    found, step = [], 1
    for size in reversed(dims):
        found.append(step)
        step *= size
    return tuple(reversed(found))


def flat_index(
    dims: Sequence[int],
    strides: Sequence[int],
    name: str = "o",
    sizes: RuntimeSizes | None = None,
    key: Hashable = None,
    order: Sequence[int] | None = None,
    count: int = 0,
    cuts: Collection[int] = (),
) -> str:
    """The C expression for sum(coordinate * stride), with the coordinates of the flat row-major index `name` in `dims`.

    With `sizes` its numbers are arguments: those of `dims` are shared by all indices of the same `name`, strides by those of
    the same `key`. Then the text is the same for other sizes, 1 included, if axes of stride 0 stay those. `order` says which axes
    of a dense tensor these are, where it is not all in order; `count` how many axes there are, where these are some; `cuts` the
    axes of which other sizes may have only a part.
    """
    if sizes is None:
        groups = _merged(dims, strides)
        parts = [_fixed_term(dims, group, name, outermost=group is groups[0]) for group in groups if group.stride]
        return " + ".join(parts) or "0"
    innermost = count - 1 if count else max((i for i, stride in enumerate(strides) if stride), default=0)
    parts = []
    for group in _joined(dims, strides, order, cuts):
        if not group.stride and order is None:
            continue
        place = name
        if group.last < len(dims) - 1:
            place = f"QUOTIENT({name}, {sizes.divisor(math.prod(dims[group.last + 1 :]), (name, group.last))})"
        if group.first:
            place = f"REMAINDER({place}, {sizes.divisor(group.size, (name, group.first, group.last))})"
        is_next = group.stride == 1 and (group.last if order is None else order[group.last]) == innermost
        parts.append(place if is_next else f"{place} * {sizes.number(group.stride, (name, key, group.first))}")
    return " + ".join(parts) or "0"


@dataclass(frozen=True, slots=True)
class _Group:
    """The axes from `first` to `last`, which one stride goes through."""

    first: int
    last: int
    size: int
    stride: int


def _merged(dims: Sequence[int], strides: Sequence[int]) -> list[_Group]:
    """Axes longer than 1, with contiguous ones joined."""
    joined: list[_Group] = []
    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        if size == 1:
            continue
        if joined and joined[-1].stride == stride * size:
            joined[-1] = _Group(joined[-1].first, axis, joined[-1].size * size, stride)
        else:
            joined.append(_Group(axis, axis, size, stride))
    return joined


def _joined(
    dims: Sequence[int], strides: Sequence[int], order: Sequence[int] | None = None, cuts: Collection[int] = ()
) -> list[_Group]:
    """All axes, with those joined that are contiguous in all sizes."""
    joined: list[_Group] = []
    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        before = None if not joined or axis in cuts else joined[-1]
        if before is not None and (before.stride == stride * size if order is None else order[axis] == order[axis - 1] + 1):
            joined[-1] = _Group(before.first, axis, before.size * size, stride)
        else:
            joined.append(_Group(axis, axis, size, stride))
    return joined


def _fixed_term(dims: Sequence[int], group: _Group, name: str, *, outermost: bool) -> str:
    step = math.prod(dims[group.last + 1 :])
    coordinate = name if step == 1 else f"({name} / {step})"
    coordinate = coordinate if outermost else f"({coordinate} % {group.size})"
    return coordinate if group.stride == 1 else f"{coordinate} * {group.stride}"


def _run(operand: Sequence[int], target: Sequence[int]) -> str:
    if all(d == 1 for d in operand):
        return "same"
    return "next" if tuple(operand) == tuple(target) else "any"


def _shifted(index: str, by: int) -> str:
    return re.sub(r"\bo\b", f"(o + {by})", index) if by else index
