"""Depthwise convolution over three axes, by convolutions of images: one for each place of the kernel along the first axis."""

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import BYXF, DType, Reason, TypedNode, same_bytes
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Alg, Arg
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, Refused, Stage, is_constant, require_data
from dovetail_cpu_onednn.kernels._conv import DEPTHWISE, padding, weights_of
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["VOLUMES", "by_images", "is_by_images", "waits"]

VOLUMES = 5
"""The rank of volumes."""

MOST_STAGES = 128
"""Where a batch needs more primitives than this, it runs as oneDNN has it."""


def by_images(node: TypedNode, free: bool) -> NodePlan:
    """The plan for a depthwise convolution over volumes, channels last. Raises `Refused`, or `Unimplemented`, for others.

    The images that an element of the kernel along the first axis reads are the batch of a convolution, which adds its sums to
    those of the elements before. oneDNN copies the windows of each channel into a matrix. 64 channels of 16 x 16 x 16, windows
    of 5 x 5 x 5: 24.2 -> 1.9 ms (CPU time, one thread, plain data).
    """
    _require(node)
    if not free and not all(same_bytes(t, t.with_layout(BYXF)) for t in (node.given(0), node.outputs[0])):
        raise Refused(Reason.LAYOUT, "accepted: channels last")
    return NodePlan(tuple(_stage(node, step) for step in _steps(node)))


def is_by_images(plan: NodePlan) -> bool:
    """Whether a plan for volumes is one of `by_images`."""
    return len(plan.stages[0].arguments[0].desc.dims) < VOLUMES


def waits(node: TypedNode) -> int:
    """How often threads that share the node wait for each other, if it runs so; else once."""
    if node.given(0).rank != VOLUMES:  # mostly
        return 1
    try:
        _require(node)
    except Refused:
        return 1
    return len(_steps(node))


@dataclass(frozen=True, slots=True)
class _Step:
    """A convolution of `count` images, from image `source` on, with the element `tap` of the kernel. It gives image `target` and
    those after it, or `adds` to them.
    """

    tap: int
    adds: bool
    count: int
    source: int
    target: int


def _require(node: TypedNode) -> None:
    """Raise `Refused` for what other kernels run."""
    op, x, result = node.op, node.given(0), node.outputs[0]
    assert isinstance(op, Conv)
    if x.rank != VOLUMES or not op.group == x.dims[1] == result.dims[1] > 1:
        raise Refused(
            Reason.SHAPE, f"{x} in {op.group} groups; accepted: three spatial axes, one channel in and out for each group"
        )
    require_data(node, frozenset({DType.FLOAT32}))
    if node.post_ops:
        raise Refused(Reason.POST_OP, "the sums of an image are complete after different primitives")
    if not is_constant(node, 1):
        raise Refused(Reason.OPERATOR, "weights that are computed")
    if len(_steps(node)) > MOST_STAGES:
        raise Refused(Reason.SHAPE, f"more than {MOST_STAGES} primitives")


def _geometry(node: TypedNode) -> ConvGeometry:
    assert isinstance(node.op, Conv)
    return node.op.geometry(node.given(0), node.given(1))


def _steps(node: TypedNode) -> tuple[_Step, ...]:
    """The convolutions in order. Where images of the result follow each other as they do in the data, one makes many of them."""
    g, batch = _geometry(node), node.given(0).dims[0]
    size, made, stride = g.input[0], g.output[0], g.strides[0]
    shifts = [tap * g.dilations[0] - g.pads_begin[0] for tap in range(g.kernel[0])]
    parts = [(0, made)] if stride == 1 else [(image, image + 1) for image in range(made)]
    return tuple(step for part in parts for step in _of_part(part, shifts, stride, batch, size, made))


def _of_part(part: tuple[int, int], shifts: Sequence[int], stride: int, batch: int, size: int, made: int) -> Iterator[_Step]:
    """The steps that give the images `part` of the result for each of the batch, first the one that gives all of them."""
    reached = [(t, s, max(part[0], -(s // stride)), min(part[1], (size - 1 - s) // stride + 1)) for t, s in enumerate(shifts)]
    taps = sorted((tap for tap in reached if tap[2] < tap[3]), key=lambda tap: tap[2] - tap[3])
    if not taps or taps[0][2:] != part:
        raise Refused(Reason.ATTRIBUTE, "pads as long as the kernel")
    for tap, shift, begin, end in taps:
        adds, source = (tap, shift) != taps[0][:2], begin * stride + shift
        if source == begin == 0 and end == size == made:
            yield _Step(tap, adds, batch * made, 0, 0)  # the images of the whole batch follow each other
        else:
            for item in range(batch):
                yield _Step(tap, adds, end - begin, item * size + source, item * made + begin)


def _stage(node: TypedNode, step: _Step) -> Stage:
    x, wei, result, g = node.given(0), node.given(1), node.outputs[0], _geometry(node)
    lib = library()
    (src, from_bytes), (dst, to_bytes) = (
        (describe(t.with_shape((step.count, t.dims[1], *t.dims[3:])).with_layout(BYXF)), 4 * t.size // t.dims[0] // t.dims[2])
        for t in (x, result)
    )
    flat = weights_of(wei.with_shape((wei.dims[0], 1, *wei.dims[3:])), wei.dims[0], False)
    bias = plain(node.given(2).dims) if not step.adds and len(node.inputs) > 2 and node.inputs[2] is not None else None
    sizes = (g.strides[1:], tuple(d - 1 for d in g.dilations[1:]), g.pads_begin[1:], padding(g)[1:])
    args = (INFERENCE, Alg.CONVOLUTION_DIRECT, src, lib.tagged(flat.dims, TAG_ANY), bias, dst, *sizes)
    attr = lib.attr([("sum", (1.0, 0, 0))] if step.adds else [])
    pd = lib.describe("convolution_forward", *args, attr=attr, instead=DEPTHWISE)
    if not pd.implementation.startswith(("jit_dw:", "brgdmm_dw:", "brdgmm_dw:")):
        raise Refused(Reason.CAPABILITY, f"only {pd.implementation} computes the images")
    arguments = [
        Argument(Arg.SRC, "input", 0, src, flexible=True, offset=step.source * from_bytes),
        Argument(Arg.WEIGHTS, "input", 1, flat, lib.arg_md(pd, Arg.WEIGHTS, flat.dims), repack=_Tap(step.tap)),
        Argument(Arg.DST, "output", 0, dst, flexible=True, offset=step.target * to_bytes),
    ]
    if bias is not None:
        arguments.append(Argument(Arg.BIAS, "input", 2, bias))
    return Stage(pd, tuple(arguments))


@dataclass(frozen=True)
class _Tap:
    """The weights of one element of the kernel along the first axis."""

    tap: int

    def __call__(self, weights: NDArray[Any]) -> NDArray[Any]:
        return weights[:, :, self.tap]
