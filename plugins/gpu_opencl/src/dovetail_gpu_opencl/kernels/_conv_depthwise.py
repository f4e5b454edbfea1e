"""Depthwise convolutions for GPUs."""

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import round_up, spread
from dovetail_gpu_opencl.kernels._conv import ConvKernel, geometry, sizes
from dovetail_gpu_opencl.kernels._spatial import IMAGES
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["ConvDepthwiseWindows"]


class ConvDepthwiseWindows(ConvKernel):
    """For GPUs: conv_depthwise_windows.cl."""

    name = "conv_depthwise_windows"
    halves_by_load = True
    taps = 64
    """At most so many weights a channel: registers hold them and their inputs."""

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        _, channels, _, _ = sizes(node)
        if channels != 1:
            return Refusal(Reason.ATTRIBUTE, "not depthwise")
        if int(np.prod(geometry(node).kernel)) > self.taps:
            return Refusal(Reason.SHAPE, f"more than {self.taps} weights a channel")
        return super().check(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        batch, _, maps, groups = sizes(node)
        numbers, chain = self.sizes(node) | {"C": groups}, post_ops.epilogue(node)
        vec = self._vector(node.outputs[0].size, numbers["OW"])
        _, (group,) = spread(numbers["OH"] * (numbers["OW"] // vec), self.caps)
        vec, group = self.packed.settled(self.name, node, (vec, group), lambda built: numbers["OW"] % built[0] == 0)
        items = round_up(numbers["OH"] * (numbers["OW"] // vec), group)
        defines = {**self.types(node), **storage(node.outputs[0].dtype), **numbers, "VEC": vec, "GROUP": group}
        own, passed = by_value(defines, ("BATCH", *IMAGES))
        source = assemble("conv_depthwise_windows.cl", own, chain.source)
        arguments = (*self.arguments(node), *passed, *chain.arguments)
        entry, work = "conv_depthwise_windows", (items, maps, batch)
        return (Launch(f"{entry}.cl", source, entry, arguments, work, (group, 1, 1)),)

    def _vector(self, size: int, width: int) -> int:
        """Elements of an item: as many as leave enough items for the device."""
        enough = 256 * self.caps.compute_units
        return next((v for v in (4, 2) if width % v == 0 and size // v >= enough), 1)
