"""The arithmetic of sliding windows, for convolution and pooling: pure functions on numbers, for operators and devices alike."""

import dataclasses
import functools
import math
from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.errors import OperatorError, ShapeError, did_you_mean

__all__ = ["AUTO_PADS", "ConvGeometry", "conv_geometry", "conv_transpose_geometry"]

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""The values of ONNX's attribute `auto_pad`."""


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """Positions of a window of `kernel` elements over `input`. All fields have one number for each spatial axis.

    Window position `o` and kernel element `k` of an axis read input element `o * stride - pad_begin + k * dilation`.
    `pads_end` is what the model asks for: with `ceil_mode` the last window may reach further, with floor less far.
    In the geometry of a transposed convolution `input` and `output` are those of that operator, and input element `i` and
    kernel element `k` add to output element `i * stride - pad_begin + k * dilation`.
    """

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.input)

    @property
    def extent(self) -> tuple[int, ...]:
        """Input elements from the first to the last that a window spans: (kernel - 1) * dilation + 1."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def kernel_size(self) -> int:
        """Elements of one window."""
        return math.prod(self.kernel)

    @property
    def is_dense(self) -> bool:
        """True when no window reads outside the input."""
        return not any(self.pads_begin) and not any(self.overhang)

    @property
    def is_pointwise(self) -> bool:
        """True when each output element reads the one input element at its own place: a matrix product over channels."""
        return self.is_dense and self.kernel_size == 1 and self.input == self.output

    @property
    def overhang(self) -> tuple[int, ...]:
        """Elements that the last window reads past the end of the input: the end padding that is really used."""
        spans = zip(self.output, self.strides, self.extent, self.pads_begin, self.input, strict=True)
        return tuple(max(0, (o - 1) * s + e - begin - size) if o else 0 for o, s, e, begin, size in spans)

    @property
    def trimmed(self) -> "ConvGeometry":
        """The geometry without the first and last kernel elements that read outside the input in every window.

        Pooling over a kernel of 10^8 elements and an input of ten reads ten: the others need neither padding nor time.
        """
        kernel, begin = [], []
        axes = zip(self.input, self.output, self.kernel, self.strides, self.dilations, self.pads_begin, strict=True)
        for size, count, elements, stride, dilation, pad in axes:
            first = min(max(0, -((count * stride - stride - pad) // dilation)), pad // dilation, elements - 1)
            last = min(elements - 1, max(first, (size - 1 + pad) // dilation))
            kernel.append(last - first + 1)
            begin.append(pad - first * dilation)
        return dataclasses.replace(self, kernel=tuple(kernel), pads_begin=tuple(begin))


def conv_geometry(
    input: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> ConvGeometry:
    """The geometry of a convolution or pooling over spatial dimensions `input`, from its ONNX attributes (None: left out).

    With `auto_pad` other than NOTSET, `pads` takes no part, as in ONNX Runtime. In `ceil_mode` the last window is dropped when it
    would start in the end padding; pads that are not longer than the window leave no other that does. There a window may be
    longer than the padded input, by less than a stride. An axis of size 0 gives the output that the formula gives, but not less
    than 0. Raises `OperatorError` for attributes out of range and `ShapeError` when a window does not fit into the padded input.
    """
    given = (None if value is None else tuple(value) for value in (strides, dilations, pads))
    return _conv_geometry(tuple(input), tuple(kernel), *given, auto_pad, ceil_mode)


@functools.lru_cache(maxsize=1024)  # every kernel that is asked about a node wants it, and models repeat their layers
def _conv_geometry(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: bool,
) -> ConvGeometry:
    rank = len(size)
    shape = _numbers("kernel_shape", kernel, rank, least=1)
    steps = _numbers("strides", strides, rank, least=1)
    gaps = _numbers("dilations", dilations, rank, least=1)
    extent = tuple((k - 1) * d + 1 for k, d in zip(shape, gaps, strict=True))
    begin, end = _pads(size, extent, steps, pads, auto_pad)
    output = tuple(_positions(size[a], extent[a], steps[a], begin[a], end[a], ceil_mode) for a in range(rank))
    return ConvGeometry(size, output, shape, steps, gaps, begin, end)


def conv_transpose_geometry(
    input: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
) -> ConvGeometry:
    """The geometry of a transposed convolution, from its ONNX attributes (None: left out).

    With `output_shape` the pads are computed from it, split in halves of which the larger is at the end for SAME_UPPER, else at
    the begin; output that no input reaches then has pads of 0. Raises as `conv_geometry` does.
    """
    rank = len(input)
    shape = _numbers("kernel_shape", kernel, rank, least=1)
    steps = _numbers("strides", strides, rank, least=1)
    gaps = _numbers("dilations", dilations, rank, least=1)
    extra = _numbers("output_padding", output_padding, rank, least=0, default=0)
    axes = range(rank)
    full = [steps[a] * (input[a] - 1) + extra[a] + (shape[a] - 1) * gaps[a] + 1 if input[a] else 0 for a in axes]
    begin, end = _explicit_pads(pads if auto_pad == "NOTSET" and output_shape is None else None, rank, auto_pad)
    wanted = tuple(max(0, full[a] - begin[a] - end[a]) for a in axes)
    if output_shape is not None:
        wanted = _numbers("output_shape", output_shape, rank, least=0)
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * step for size, step in zip(input, steps, strict=True))
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        upper = auto_pad == "SAME_UPPER"
        begin, end = _split([max(0, full[a] - wanted[a]) for a in axes], "SAME_UPPER" if upper else "SAME_LOWER")
    return ConvGeometry(tuple(input), wanted, shape, steps, gaps, begin, end)


def _numbers(name: str, value: Sequence[int] | None, rank: int, *, least: int, default: int = 1) -> tuple[int, ...]:
    numbers = (default,) * rank if value is None else tuple(value)
    if len(numbers) != rank or any(n < least for n in numbers):
        raise OperatorError(
            f"attribute {name!r} is {list(numbers)}; accepted: {rank} numbers, one a spatial axis, each >= {least}"
        )
    return numbers


def _explicit_pads(pads: Sequence[int] | None, rank: int, auto_pad: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if auto_pad not in AUTO_PADS:
        raise OperatorError(f"attribute 'auto_pad' is {auto_pad!r}", hint=did_you_mean(auto_pad, AUTO_PADS))
    numbers = (0,) * (2 * rank) if pads is None else tuple(pads)
    if len(numbers) != 2 * rank or any(n < 0 for n in numbers):
        raise OperatorError(f"attribute 'pads' is {list(numbers)}; accepted: {2 * rank} numbers >= 0, all begins before the ends")
    return numbers[:rank], numbers[rank:]


def _pads(
    size: tuple[int, ...], extent: tuple[int, ...], steps: tuple[int, ...], pads: Sequence[int] | None, auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return _explicit_pads(pads if auto_pad == "NOTSET" else None, len(size), auto_pad)
    covered = [(-(-n // step) - 1) * step + e for n, step, e in zip(size, steps, extent, strict=True)]
    return _split([max(0, c - n) for c, n in zip(covered, size, strict=True)], auto_pad)


def _split(totals: Sequence[int], auto_pad: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    small = tuple(total // 2 for total in totals)
    large = tuple(total - total // 2 for total in totals)
    return (large, small) if auto_pad == "SAME_LOWER" else (small, large)


def _positions(size: int, extent: int, step: int, begin: int, end: int, ceil_mode: bool) -> int:
    room = size + begin + end - extent
    if room < 0 and not (ceil_mode and size and room > -step):
        if size == 0:
            return 0
        raise ShapeError(f"a window of {extent} elements (kernel with dilation) does not fit into {size} + pads {begin} + {end}")
    if not ceil_mode:
        return room // step + 1
    count = -(-room // step) + 1
    return count - 1 if (count - 1) * step >= size + begin else count
