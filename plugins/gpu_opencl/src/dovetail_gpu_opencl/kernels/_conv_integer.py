"""Exact convolutions of 8-bit integers: by rows on CPUs, directly elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.device import NHWC, PLAIN, DType, LayerConfig, Layout, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._integer import (
    EIGHT_BITS,
    ONE,
    Lines,
    Places,
    Ports,
    Result,
    Weights,
    given,
    read,
    result_of,
    scales_refusal,
)
from dovetail_gpu_opencl.kernels._integer_rows import VECTOR, Sums, channels_last, is_sparse, source_of
from dovetail_gpu_opencl.kernels._spatial import IMAGES, MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = [
    "SPARSE",
    "IntegerConv",
    "IntegerConvDirect",
    "IntegerConvRows",
    "direct_sizes",
    "operands_in",
    "row_defines",
    "same_layout",
    "windows_configurations",
    "windows_launches",
]

_DIVISORS = ("P", "OH", "OW")
_SIZES = ("SIZE", *(name for name in IMAGES if name not in _DIVISORS))
SPARSE = "groups of few channels; vectors along these would be mostly empty"


class IntegerConv(CLKernel):
    """The base of both kernels."""

    half_by_load = True
    max_spatial = MAX_SPATIAL
    dtypes = EIGHT_BITS | {DType.INT32, DType.FLOAT32, DType.FLOAT16}

    def __init__(self, ports: Ports) -> None:
        self.ports = ports

    def check(self, node: TypedNode) -> Refusal | None:
        rank = self.geometry(node).rank
        return scales_refusal(node, self.ports) if rank <= self.max_spatial else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def weights(self, node: TypedNode) -> TensorType:
        """The type of the weights."""
        found = given(node, self.ports.second)
        assert found is not None
        return found

    def geometry(self, node: TypedNode) -> ConvGeometry:
        """The node's windows."""
        op: Any = node.op
        found: ConvGeometry = op.conv().geometry(node.inputs[0], self.weights(node))
        return found

    def sizes(self, node: TypedNode) -> dict[str, int]:
        """The numbers of the node, by the names that the kernels use."""
        maps, channels = self.weights(node).dims[:2]
        op: Any = node.op
        return {"GROUPS": op.group, "C": channels, "M": maps, **spatial_defines(self.geometry(node))}

    def result(self, node: TypedNode) -> Result:
        """The steps after the sums."""
        maps = Lines("n", self.weights(node).dims[0], "n")
        return result_of(post_ops.in_memory_order(node), self.ports, self.caps, Places(ONE, maps, ONE), self.vec)

    @property
    def vec(self) -> int:
        """Results that are stored as one vector."""
        return 1

    def source_type(self, node: TypedNode) -> TensorType:
        """The type of the first input."""
        assert node.inputs[0] is not None
        return node.inputs[0]


class IntegerConvRows(IntegerConv):
    """For CPUs: integer_rows.cl. The channels of input and output may be innermost."""

    name = "conv_integer_rows"
    max_spatial = 2

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        zero = given(node, self.ports.second_zero)
        if self.weights(node).value is None or (zero is not None and zero.value is None):
            return Refusal(Reason.ATTRIBUTE, "the weights or their zero points are not constant")
        maps, channels = self.weights(node).dims[:2]
        if is_sparse(self.sizes(node)["GROUPS"], channels, maps):
            return Refusal(Reason.SHAPE, SPARSE)
        return super().check(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return windows_configurations(node)

    @property
    def vec(self) -> int:
        return VECTOR

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        zero, bias = read(node, self.ports.first_zero), read(node, self.ports.bias)
        return windows_launches(self.caps, node, self.sizes(node), self._weights(node), zero, bias, self.result(node))

    def _weights(self, node: TypedNode) -> Weights:
        value, zero = self.weights(node).value, given(node, self.ports.second_zero)
        assert value is not None
        return Weights.of(self.packed, value, None if zero is None else zero.value, 0)


def windows_configurations(node: TypedNode) -> Sequence[LayerConfig]:
    """Channels innermost on both sides, or plain, which is slower than a reorder."""
    rest, (src, dst) = (PLAIN,) * (len(node.inputs) - 1), (node.inputs[0], node.outputs[0])
    assert src is not None
    layouts = (NHWC, PLAIN) if dst.rank > 2 else (PLAIN,)
    cost = {NHWC: 0, PLAIN: 2}
    operands = {layout: operands_in(node, layout) for layout in layouts}
    return [
        LayerConfig((a, *rest), (b,), found, src.nbytes * cost[a] + dst.nbytes * cost[b])
        for a in layouts
        for b, found in operands.items()
        if found is not None
    ]


def operands_in(node: TypedNode, layout: Layout) -> tuple[Layout, ...] | None:
    """The layouts of post-op operands for a result in this layout: the same or, along it, plain; None where that cannot be."""
    dst = node.outputs[0]
    if not all(t.dims == dst.dims or post_ops.lies_along(t, dst, layout) for t in node.operands):
        return None
    return tuple(layout if t.dims == dst.dims else PLAIN for t in node.operands)


def same_layout(configurations: Sequence[LayerConfig]) -> Sequence[LayerConfig]:
    """Those with the image and the result in one layout."""
    return [one for one in configurations if one.inputs[0] == one.outputs[0]]


def row_defines(x: str, weights: Mapping[str, object], *, has_zero: bool = True, has_bias: bool) -> dict[str, object]:
    """The defines of integer_rows.cl for inputs with one zero point, and weights from which theirs is subtracted."""
    zero = "x_zero[0]" if has_zero else "0"
    return {"X": x, **weights, "B": weights["W"], "X_ZERO(z, m)": zero, "B_ZERO(z, n)": "0", "HAS_BIAS": has_bias}


def windows_launches(
    caps: Capabilities,
    node: TypedNode,
    numbers: Mapping[str, int],
    weights: Weights,
    zero: Argument,
    bias: Argument,
    result: Result,
) -> tuple[Launch, ...]:
    """The launches of a convolution by weights [M, C, *K]."""
    src, dst = node.inputs[0], node.outputs[0]
    assert src is not None
    if not dst.size:
        return ()
    sums = Sums(numbers, dst.dims[0], dst.layout == PLAIN)
    wei, packing = sums.pack(weights, caps)
    has_zero, has_bias = not isinstance(zero, Null), not isinstance(bias, Null)
    defines = row_defines(C_TYPES[src.dtype], packing, has_zero=has_zero, has_bias=has_bias)
    given = Read(node.node.inputs[0])
    channels, pixels = src.dims[1], int(np.prod(src.dims[2:]))
    if src.layout != PLAIN or 1 in (channels, pixels):
        return (sums.launch(caps.compute_units, defines, result, given, wei, zero, bias, Write(node.node.outputs[0])),)
    scratch = Scratch(f"scratch:{node.name}:0", src.nbytes)
    main = sums.launch(caps.compute_units, defines, result, scratch, wei, zero, bias, Write(node.node.outputs[0]))
    return (channels_last(source_of(defines, result), given, scratch, src.dims[0], channels, pixels), main)


def direct_sizes(defines: Mapping[str, object]) -> tuple[dict[str, object], tuple[Scalar, ...]]:
    """The defines of conv_integer.cl without the sizes of images, and these."""
    own: Mapping[str, Any] = defines
    return by_value({**own, "P": own["OD"] * own["OH"] * own["OW"]}, _SIZES, _DIVISORS)


class IntegerConvDirect(IntegerConv):
    """One element a work item: conv_integer.cl."""

    name = "conv_integer"

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return same_layout(windows_configurations(node))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size, result, ports = node.outputs[0].size, self.result(node), self.ports
        zero, own = given(node, ports.first_zero), given(node, ports.second_zero)
        maps = Lines("m", self.weights(node).dims[0], "m")
        defines = {
            **result.defines,
            **self.sizes(node),
            "SIZE": size,
            "X": C_TYPES[self.source_type(node).dtype],
            "W": C_TYPES[self.weights(node).dtype],
            "X_ZERO": "0" if zero is None else "x_zero[0]",
            "W_ZERO(m)": "0" if own is None else f"w_zero[{maps.of(own)}]",
            "HAS_BIAS": given(node, ports.bias) is not None,
            "INNERMOST": node.outputs[0].layout == NHWC,
        }
        sized, numbers = direct_sizes(defines)
        source = assemble("conv_integer.cl", sized, result.source)
        work, local = spread(size, self.caps)
        factors = (Read(node.node.inputs[0]), Read(node.node.inputs[ports.second]))
        rest = (read(node, ports.first_zero), read(node, ports.second_zero), read(node, ports.bias))
        arguments = (*factors, *rest, Write(node.node.outputs[0]), *numbers, *result.arguments)
        return (Launch("conv_integer.cl", source, self.name, arguments, work, local),)
