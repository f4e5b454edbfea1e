"""Exact convolutions of 8-bit integers: by rows on CPUs, directly elsewhere."""

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail.spatial import ConvGeometry
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._conv import named
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, ONE, Lines, Places, Ports, Result, given, read, result_of
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scratch, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["IntegerConvDirect", "IntegerConvRows"]


class IntegerConv(CLKernel):
    """What both kernels share."""

    half_by_load = True
    has_epilogue = False
    max_spatial = MAX_SPATIAL
    dtypes = EIGHT_BITS | {DType.INT32, DType.FLOAT32, DType.FLOAT16}

    def __init__(self, ports: Ports) -> None:
        self.ports = ports

    def check(self, node: TypedNode) -> Refusal | None:
        rank = self.geometry(node).rank
        return None if rank <= self.max_spatial else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def weights(self, node: TypedNode) -> TensorType:
        """The type of the weights."""
        found = given(node, self.ports.second)
        assert found is not None
        return found

    def geometry(self, node: TypedNode) -> ConvGeometry:
        """The node's windows."""
        found: ConvGeometry = node.op.conv().geometry(node.inputs[0], self.weights(node))  # type: ignore[attr-defined]  # of ours
        return found

    def sizes(self, node: TypedNode) -> dict[str, int]:
        """The numbers of the node, by the names that the kernels use."""
        maps, channels = self.weights(node).dims[:2]
        groups: int = node.op.group  # type: ignore[attr-defined]  # a convolution
        return {"GROUPS": groups, "C": channels, "M": maps, **spatial_defines(self.geometry(node))}

    def maps(self, node: TypedNode) -> Lines:
        """The output channels."""
        return Lines("m", self.weights(node).dims[0], "m")

    def result(self, node: TypedNode) -> Result:
        """What becomes of the sums."""
        return result_of(node, self.ports, self.caps, Places(ONE, self.maps(node), ONE))

    def defines(self, node: TypedNode, result: Result) -> dict[str, object]:
        """Types, zero points and the bias."""
        zero, own = (given(node, index) for index in (self.ports.first_zero, self.ports.second_zero))
        assert node.inputs[0] is not None
        return {
            **result.defines,
            "X": C_TYPES[node.inputs[0].dtype],
            "W": C_TYPES[self.weights(node).dtype],
            "X_ZERO": "0" if zero is None else "x_zero[0]",
            "W_ZERO(m)": "0" if own is None else f"w_zero[{self.maps(node).of(own)}]",
            "HAS_BIAS": given(node, self.ports.bias) is not None,
        }


class IntegerConvRows(IntegerConv):
    """For CPUs: conv_integer_rows.cl."""

    name = "conv_integer_rows"
    rows, run = 6, 512
    max_spatial = 2

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        zero = given(node, self.ports.second_zero)
        if self.weights(node).value is None or (zero is not None and zero.value is None):
            return Refusal(Reason.ATTRIBUTE, "the weights or their zero points are no constant")
        return super().check(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        numbers, result, g = self.sizes(node), self.result(node), self.geometry(node)
        columns, maps = 2 * self.caps.lanes("float"), numbers["M"] // numbers["GROUPS"]
        packed = pack_weights(self._shifted(node), numbers["GROUPS"], columns)
        defines = self.defines(node, result) | {"ROWS": self.rows, "RUN": self.run, "VEC": columns // 2}
        names = "GROUPS C M IH IW OH OW KH KW STRIDE_Y STRIDE_X DILATION_Y DILATION_X PAD_Y PAD_X"
        src = node.inputs[0]
        assert src is not None
        wide = Scratch(f"scratch:{node.name}:0", 4 * src.size)
        arguments: tuple[Argument, ...] = (
            wide,
            Constant(packed),
            read(node, self.ports.bias),
            Write(node.node.outputs[0]),
            *named(numbers, names),
            *result.arguments,
        )
        pixels = int(np.prod(g.output))
        work = (ceil_div(pixels, self.rows), numbers["GROUPS"] * ceil_div(maps, columns), node.outputs[0].dims[0])
        file, source = "conv_integer_rows.cl", assemble("conv_integer_rows.cl", defines, result.source)
        given = (Read(node.node.inputs[0]), read(node, self.ports.first_zero), wide, *ints(src.size))
        return (
            Launch(file, source, "widen", given, (ceil_div(src.size, self.run),), (1,)),
            Launch(file, source, self.name, arguments, work, (1, 1, 1)),
        )

    def _shifted(self, node: TypedNode) -> NDArray[np.integer]:
        """The weights less their zero points."""
        value, zero = self.weights(node).value, given(node, self.ports.second_zero)
        assert value is not None
        whole = value.astype(np.int16)
        if zero is None or zero.value is None:
            return whole
        return whole - zero.value.astype(np.int16).reshape(-1, *(1,) * (whole.ndim - 1))


def pack_weights(weights: NDArray[np.integer], groups: int, columns: int) -> NDArray[np.float32]:
    """[M, C, *K] as [groups, ceil(M / groups / columns), *K, C, columns], padded with zeros, in float32."""
    maps, channels = weights.shape[:2]
    own, elements = maps // groups, int(np.prod(weights.shape[2:]))
    blocks = ceil_div(own, columns)
    padded = np.zeros((groups, blocks * columns, channels, elements), np.float32)
    padded[:, :own] = weights.reshape(groups, own, channels, elements)
    return np.ascontiguousarray(padded.reshape(groups, blocks, columns, channels, elements).transpose(0, 1, 4, 3, 2))


class IntegerConvDirect(IntegerConv):
    """One element a work item: conv_integer.cl."""

    name = "conv_integer"

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size, result, ports = node.outputs[0].size, self.result(node), self.ports
        defines = self.defines(node, result) | self.sizes(node) | {"SIZE": size}
        source = assemble("conv_integer.cl", defines, result.source)
        work, local = spread(size, self.caps)
        factors = (Read(node.node.inputs[0]), Read(node.node.inputs[ports.second]))
        rest = (read(node, ports.first_zero), read(node, ports.second_zero), read(node, ports.bias))
        arguments = (*factors, *rest, Write(node.node.outputs[0]), *result.arguments)
        return (Launch("conv_integer.cl", source, self.name, arguments, work, local),)
