"""The steps of a quantized operator after its sum, as post-ops of the primitive: scale, round, add and store.

Numbers of a layer are arguments where that does not cost time in each run: layers of the same sizes share a primitive then.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import Binary, DType, Eltwise, PostOp, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import Arg, MemoryDesc, PrimitiveDesc
from dovetail_cpu_onednn.descriptors import describe, number_of, plain, undecided
from dovetail_cpu_onednn.elementwise import MAX, MIN
from dovetail_cpu_onednn.kernel import Argument, Refused, value_argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE, Appended, eltwise_kind
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling
from dovetail_ops_onnx.relu import Relu

__all__ = ["Epilogue", "gives_halves", "single_scale"]

Array = NDArray[Any]

RELU = Eltwise("relu")

_LIMITS = {"max": MAX, "min": MIN}

LARGEST = 1e30
"""Factors below it, and above its inverse, are normal numbers of float32, and their inverses are."""


@dataclass
class Epilogue:
    """A chain under construction. `head` is the factor and offset before its first step, `after` those that are pending.

    `vector` (float32) multiplies the sum where that is quantized at once: one number, or one for each output channel.
    `numbers` are arguments of the steps at these positions, in `rank` dimensions. `divisor` divides what is stored. Both are
    left out with rank 0, where the number is not a sum of products. `row` is the pending sum of constant rows. `reads_all`: the
    primitive reads all numbers when it runs.
    """

    free: bool
    dims: tuple[int, ...] | None = None
    vector: Array | None = None
    head: tuple[float, float] = (1.0, 0.0)
    after: tuple[float, float] = (1.0, 0.0)
    appended: list[Appended] = field(default_factory=list)
    reads: list[tuple[int, int, MemoryDesc]] = field(default_factory=list)
    rank: int = 0
    numbers: list[tuple[int, Array]] = field(default_factory=list)
    divisor: Array | None = None
    row: Array | None = None
    reads_all: bool = False

    @staticmethod
    def of(
        node: TypedNode, op: Quantized, free: bool, units: Array, *, sums: bool, dims: tuple[int, ...] | None = None
    ) -> "Epilogue":
        """All steps but the first, and the quantization of the result.

        `units` (float32) are the real values of one unit of the computed number; `sums`: that number is a sum of products. `dims`
        are those in which the result is computed, if in others.
        """
        rank = len(dims or node.outputs[0].dims) if sums else 0
        # Of products few sizes are made for many layers. Convolutions share fewer, and run 4 to 6 % longer.
        chain = Epilogue(free, dims, rank=rank, reads_all=dims is not None)
        # Relu gives the same before and after a multiplication, so it may come between the sum and its quantization.
        at = next((i for i, step in enumerate(op.steps[1:]) if not _is_relu(step)), len(op.steps) - 1)
        first = (*op.steps[1:], op.result)[at]
        exact = sums and isinstance(first, Scaling)
        if exact and isinstance(first, Scaling):
            chain.vector = units / np.float32(single_scale(first)[0])
        for index, step in enumerate(op.steps[1:]):
            if isinstance(step, Scaling):
                chain._round(step, scaled=exact and index == at)
            else:
                chain._step(node, op, step)
        if op.result is not None:
            chain._store(op.result, units, scaled=exact and at == len(op.steps) - 1)
            chain._divide()
        chain._flush()
        return chain

    def _store(self, scaling: Scaling, units: Array, *, scaled: bool) -> None:
        """To the numbers that are stored; oneDNN rounds last, halves to even. Before an odd zero point that is another half."""
        scale, zero = single_scale(scaling)
        if zero and (scaled or (zero % 2 and (gives_halves(units / scale) or gives_halves(np.array(self.after[0] / scale))))):
            self._affine(1.0 if scaled else 1 / scale, 0.0)
            self._flush()
            self.appended.append(("eltwise", (ELTWISE["round"], 0.0, 0.0)))
            self._affine(1.0, zero)
        elif not scaled:
            self._affine(1 / scale, zero)

    def _affine(self, factor: float, offset: float) -> None:
        self.after = (self.after[0] * factor, self.after[1] * factor + offset)
        self.row = None if self.row is None else self.row * factor

    def _flush(self) -> None:
        factor, offset = self.after
        if not self.appended:
            self.head = (self.head[0] * factor, self.head[1] * factor + offset)
        elif self.reads_all:
            if factor != 1:
                self._read("mul", _number_in(self.rank, factor))
            if offset and self.row is None:
                self._read("add", _number_in(self.rank, offset))
        elif self.after != (1.0, 0.0):
            self.appended.append(("eltwise", (ELTWISE["linear"], factor, offset)))
        if self.row is not None:
            row = self.row + (offset if self.appended else 0.0)
            if (np.abs(row) > np.finfo(np.float32).max).any():
                raise Refused(Reason.ATTRIBUTE, "a constant operand beyond float32")
            self._read("add", row.astype(np.float32).reshape((*(1,) * (self.rank - 1), -1)))
        self.after, self.row = (1.0, 0.0), None

    def _read(self, algorithm: str, number: Array) -> None:
        """A step by a number, or a row of them, that is read when the primitive runs."""
        self.numbers.append((len(self.appended), number))
        self.appended.append(("binary", (_LIMITS.get(algorithm) or BINARY[algorithm], plain(number.shape))))

    def _divide(self) -> None:
        """Let the last factor be a scale of the stored numbers, which takes less time than a step; not where the rounded quotient
        would decide about exact halves.
        """
        factor, offset = self.after
        is_usual = 1 / LARGEST < abs(factor) < LARGEST and factor != 1 and not gives_halves(np.array(factor))
        if self.rank and self.appended and is_usual and not offset and self.row is None:
            self.divisor, self.after = _number_in(1, 1 / factor), (1.0, 0.0)

    def _round(self, scaling: Scaling, *, scaled: bool) -> None:
        """To the numbers that the quantization has, and back. `scaled`: the value counts in its units already."""
        scale, zero = single_scale(scaling)
        limits = np.iinfo(scaling.dtype.numpy)
        self._affine(1.0 if scaled else 1 / scale, 0.0)
        self._flush()
        self.appended.append(("eltwise", (ELTWISE["round"], 0.0, 0.0)))
        if self.reads_all:
            self._read("max", _number_in(self.rank, limits.min - zero))
            self._read("min", _number_in(self.rank, limits.max - zero))
        else:
            self.appended.append(("eltwise", (ELTWISE["clip"], limits.min - zero, limits.max - zero)))
        self._affine(scale, 0.0)

    def _step(self, node: TypedNode, op: Quantized, step: QuantizedStep) -> None:
        result = node.outputs[0].with_dtype(DType.FLOAT32)
        names = ["" if i is None else str(i) for i in step.inputs]
        real = [t if s is None else node.given(i).with_dtype(DType.FLOAT32) for i, (t, s) in _inputs(node, op)]
        types = [None if i is None else result if i < 0 else real[i] for i in step.inputs]
        chain = step.op.post_ops(types, names, names.index("-1"))
        if chain is None:
            raise Refused(Reason.POST_OP, f"{step.op.key} is not a chain of post-ops")
        for post_op in chain:
            if isinstance(post_op, Eltwise):
                self._eltwise(post_op)
            else:
                self._binary(node, op, post_op)

    def _eltwise(self, post_op: Eltwise) -> None:
        if post_op.algorithm == "linear":
            self._affine(post_op.alpha * post_op.scale, post_op.beta * post_op.scale)
            return
        positive = self.after[0] > 0 and not self.after[1] and self.row is None
        if post_op == RELU and self.rank and positive and self._is_limited:
            self._limit()
            return
        self._flush()
        self.appended += eltwise_kind(post_op)

    @property
    def _is_limited(self) -> bool:
        """Whether the last step, or the last two by numbers, are a lower limit of 0 or below and an upper one above it."""
        if self.reads_all:
            return [step[1][0] for step in self.appended[-2:]] == [MAX, MIN]
        kind, numbers = self.appended[-1] if self.appended else ("", ())
        return kind == "eltwise" and numbers[0] == ELTWISE["clip"] and numbers[1] <= 0 < numbers[2]  # type: ignore[operator]

    def _limit(self) -> None:
        """Let 0 be the lower limit, as a Relu before or behind the pending factor does, and the upper one an argument."""
        if self.reads_all:
            self.numbers[-2] = self.numbers[-2][0], _number_in(self.rank, 0)
            return
        number = _number_in(self.rank, self.appended.pop()[1][2])
        self.appended.append(("eltwise", (ELTWISE["relu"], 0.0, 0.0)))
        self._read("min", number)

    def _binary(self, node: TypedNode, op: Quantized, post_op: PostOp) -> None:
        if not isinstance(post_op, Binary) or post_op.algorithm not in BINARY:
            raise Refused(Reason.POST_OP, f"{post_op} on quantized values")
        index = int(post_op.operand)
        tensor, scaling = node.given(index), op.scalings[index]
        scale, zero = (1.0, 0.0) if scaling is None else single_scale(scaling)
        sign = {"add": 1.0, "sub": -1.0}.get(post_op.algorithm, 0.0)
        if scaling is not None and not sign and zero:
            raise Refused(Reason.POST_OP, f"{post_op.algorithm} by values with a zero point")
        if sign and self.reads_all and tensor.value is not None and set(tensor.dims[:-1]) <= {1}:
            row = (tensor.value.reshape(-1).astype(np.float64) - zero) * (sign * scale)
            self.row = row if self.row is None else self.row + row
            return
        # value + scale * (stored - zero), divided by the scale while the stored numbers are added.
        if sign:
            self._affine(1 / scale, -sign * zero)
        self._flush()
        self.reads.append((len(self.appended), index, self._operand(tensor, node.outputs[0])))
        self.appended.append(("binary", (BINARY[post_op.algorithm], self.reads[-1][2])))
        self._affine(1 / scale if post_op.algorithm == "div" else scale, 0.0)

    def _operand(self, tensor: TensorType, result: TensorType) -> MemoryDesc:
        number = number_of(tensor.dtype)
        if tensor.dims == result.dims:
            if self.dims not in (None, result.dims):
                return plain(self.dims or (), number)
            return undecided(tensor) if self.free else describe(tensor)
        dims = (1,) * (result.rank - tensor.rank) + tensor.dims
        if self.dims not in (None, result.dims):
            if any(size > 1 for size in dims[:-1]):
                raise Refused(Reason.POST_OP, f"operand {tensor} for a result {result} that is computed as {self.dims}")
            dims = (1,) * (len(self.dims or ()) - 1) + dims[-1:]
        return plain(dims, number)

    def arguments(self, pd: PrimitiveDesc, shift: int = 0) -> list[Argument]:
        """The operands of the chain, which has `shift` steps before it."""
        lib, found = library(), []
        for position, index, desc in self.reads:
            arg = Arg.post_op(position + shift, Arg.SRC_1)
            found.append(Argument(arg, "input", index, lib.taken(pd, arg, desc), flexible=len(desc.dims) > 2))
        found += [value_argument(Arg.post_op(position + shift, Arg.SRC_1), number) for position, number in self.numbers]
        if self.divisor is not None:
            found.append(value_argument(Arg.SCALES | Arg.DST, self.divisor))
        return found

    @property
    def masks(self) -> list[tuple[str, int, int]]:
        """The mask of the divisor, for the attributes of the primitive."""
        return [] if self.divisor is None else [("scales", int(Arg.DST), 0)]

    @property
    def whole(self) -> list[Appended]:
        """The chain with its head as its first step, for primitives that have no bias to fold that into."""
        if self.head == (1.0, 0.0):
            return self.appended
        return [("eltwise", (ELTWISE["linear"], *self.head)), *self.appended]


@lru_cache(1024)
def _number_in(rank: int, value: Any) -> Array:
    """The number in so many dimensions; one object for equal ones, which plans for other sizes have again."""
    return np.full((1,) * rank, value, np.float32)


def _inputs(node: TypedNode, op: Quantized) -> Iterable[tuple[int, tuple[TensorType | None, Scaling | None]]]:
    """Index, type and scaling of each input."""
    return enumerate(zip(node.inputs, op.scalings, strict=True))


def _is_relu(step: QuantizedStep | Scaling) -> bool:
    return isinstance(step, QuantizedStep) and isinstance(step.op, Relu)


def gives_halves(factors: Array) -> bool:
    """Whether products of these and whole numbers can be exact halves: only factors of few bits give such systematically."""
    mantissas, _ = np.frexp(np.asarray(factors, np.float64))
    return bool((mantissas * 4096 % 1 == 0).any())


def single_scale(scaling: Scaling) -> tuple[float, float]:
    """Scale and zero point of a whole tensor. Raises `Refused` where there are several."""
    if not scaling.is_single:
        raise Refused(Reason.ATTRIBUTE, "activations with several scales; accepted: one scale and zero point")
    return scaling.numbers
