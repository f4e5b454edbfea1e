"""RowDigits: a few calls of NumPy on all blocks of all rows at once."""

import sys
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dovetail.device import Accepted, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_ops_onnx.row_digits import EXACT, RowDigits

_LEAST = np.float32(1e-30)
"""Blocks whose largest number is below have the digit 0."""

_TOP = np.int32(30)
"""The exponent that the largest number of a block gets."""

_SIGNS = np.int32(0x00808080)
"""Added to a number whose bytes are to be digits from -128 to 127: the lower three carry above 127, and count from -128."""


class Digits(PythonKernel):
    """Rounds rows to one digit, or takes the bytes of its numbers as whole ones."""

    name = "numpy"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        op = node.op
        assert isinstance(op, RowDigits)
        a = array(node.node.inputs[0])
        a = a.reshape(-1, a.shape[-1])
        (many, columns), batches = a.shape, op.batches(a.shape[1])
        whole = batches * op.group * op.block_size
        filled = a if whole == columns else np.zeros((many, whole), np.float32)
        rows = filled.reshape(-1, op.block_size)
        digits, factors, *rest = (array(name) for name in node.node.writes)
        places = digits.reshape(batches, op.group, op.count, many, op.group, op.block_size)
        # Block `place` of a group is in its own rows and columns.
        own = np.einsum("bpcmps->bpcms", places) if op.group > 1 else places[:, :, :, :, 0]
        zeroed = digits if op.group > 1 else None
        make = _one_digit if op.count == 1 else _all_digits
        sums = rest[0].reshape(len(rows), 1) if rest else None
        run = make(rows, own, factors.reshape(len(rows), op.count), sums, zeroed)
        return (run,) if filled is a else (partial(np.copyto, filled[:, :columns], a), run)


def _placed(numbers: Array, digits: Array) -> Array:
    """Numbers [rows * blocks, count, size] in the order of digits [batches, group, count, rows, size]."""
    batches, group, count, many, size = digits.shape
    return numbers.reshape(many, batches, group, count, size).transpose(1, 2, 3, 0, 4)


def _one_digit(rows: Array, digits: Array, factors: Array, sums: Array | None, zeroed: Array | None) -> Call:
    numbers, largest, scale = np.empty_like(rows), np.empty((len(rows), 1), np.float32), np.empty((len(rows), 1), np.float32)
    placed, unit, most, rest = _placed(numbers[:, None], digits), np.float32(1 / 127), np.float32(127), scale

    def run() -> None:
        np.absolute(rows, numbers)
        np.maximum.reduce(numbers, 1, out=largest, keepdims=True)
        np.maximum(largest, _LEAST, out=scale)
        np.divide(most, scale, scale)
        np.multiply(rows, scale, numbers)
        np.rint(numbers, numbers)
        if zeroed is not None:
            zeroed.fill(0)
        np.copyto(digits, placed, "unsafe")
        np.subtract(largest, largest, rest)  # NaN for infinity
        np.multiply(largest, unit, largest)
        np.add(largest, rest, factors)
        if sums is not None:
            np.add.reduce(numbers, 1, out=sums, keepdims=True)
            np.multiply(sums, factors, sums)

    return run


def _all_digits(rows: Array, digits: Array, factors: Array, sums: Array | None, zeroed: Array | None) -> Call:
    numbers, whole = np.empty_like(rows), np.empty(rows.shape, np.int32)
    largest, exponents = np.empty((len(rows), 1), np.float32), np.empty((len(rows), 1), np.int32)
    rest, shifts = np.empty_like(largest), np.array([[0, 8, 16, 24]], np.int32) - np.int32(30)
    powers, unit = np.empty((len(rows), EXACT), np.int32), np.float32(1)
    # The bytes of the numbers, the lowest first.
    single = whole.view(np.int8).reshape(*rows.shape, EXACT).swapaxes(1, 2)
    placed = _placed(single[:, ::-1] if sys.byteorder == "big" else single, digits)

    def run() -> None:
        np.absolute(rows, numbers)
        np.maximum.reduce(numbers, 1, out=largest, keepdims=True)
        np.subtract(largest, largest, rest)  # NaN for NaN and infinity
        np.frexp(largest, largest, exponents)
        np.add(exponents, shifts, powers)
        np.ldexp(unit, powers, factors)
        np.add(factors, rest, factors)
        np.subtract(_TOP, exponents, exponents)
        np.ldexp(rows, exponents, numbers)
        np.rint(numbers, numbers)
        np.copyto(whole, numbers, "unsafe")
        np.add(whole, _SIGNS, whole)
        np.bitwise_xor(whole, _SIGNS, whole)
        if zeroed is not None:
            zeroed.fill(0)
        np.copyto(digits, placed)
        if sums is not None:
            np.add.reduce(rows, 1, out=sums, keepdims=True)

    return run


KERNELS = (Digits(),)
