"""Shared by the kernels of convolutions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, one_float
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.launch import Argument, Read, Write
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["ConvKernel", "constant_weights", "geometry", "has_bias", "problem_key", "sizes", "wide"]


class ConvKernel(CLKernel):
    """The base of all convolution kernels but the matrix product: defines and arguments."""

    max_spatial = 2

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        refusal = None if self.mixes else one_float(node)
        return super().supports(node) if refusal is None else refusal

    def check(self, node: TypedNode) -> Refusal | None:
        rank = geometry(node).rank
        return None if rank <= self.max_spatial else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def types(self, node: TypedNode) -> dict[str, object]:
        """The data types, and whether there is a bias."""
        dtype = node.outputs[0].dtype
        return {"T": STORED_TYPES[dtype], "ACC": accumulator(dtype), "HAS_BIAS": has_bias(node)}

    def sizes(self, node: TypedNode) -> dict[str, int]:
        """The numbers of the node, by the names that kernels use."""
        batch, channels, maps, groups = sizes(node)
        return {"BATCH": batch, "GROUPS": groups, "C": channels, "M": maps, **spatial_defines(geometry(node))}

    def arguments(self, node: TypedNode, weights: Argument | None = None) -> tuple[Argument, ...]:
        """src, wei, bia if there is one, dst."""
        names = node.node.inputs
        bias = (Read(names[2]),) if has_bias(node) else ()
        return (Read(names[0]), weights or Read(names[1]), *bias, Write(node.node.outputs[0]))


def geometry(node: TypedNode) -> ConvGeometry:
    """The node's windows."""
    assert isinstance(node.op, Conv)
    return node.op.geometry(node.given(0), node.given(1))


def sizes(node: TypedNode) -> tuple[int, int, int, int]:
    """N, the input channels of a group, M, and the number of groups."""
    assert isinstance(node.op, Conv)
    maps, channels = node.given(1).dims[:2]
    return node.given(0).dims[0], channels, maps, node.op.group


def constant_weights(node: TypedNode) -> NDArray[Any]:
    """The content of the weights, for kernels that take constant ones only."""
    weights = node.given(1).value
    assert weights is not None
    return weights


def problem_key(start: str, node: TypedNode) -> str:
    """The key of the problem in tables of tuned parameters: everything on which its speed depends."""
    batch, channels, maps, groups = sizes(node)
    g = geometry(node)
    parts = (groups, channels, maps, *g.input, "kernel", *g.kernel, "strides", *g.strides, "pads", *g.pads_begin)
    return f"{start} {node.outputs[0].dtype} {batch} " + " ".join(str(part) for part in (*parts, "dilations", *g.dilations))


def has_bias(node: TypedNode) -> bool:
    """True when the third input is present."""
    return len(node.inputs) > 2 and node.inputs[2] is not None


def wide(c_type: str) -> type[np.floating]:
    """The NumPy type of an accumulator."""
    return np.float64 if c_type == "double" else np.float32
