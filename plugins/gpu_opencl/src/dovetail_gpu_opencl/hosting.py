"""Runs the OpenCL kernels that an operator's class provides (`OpenCLKernel`)."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import (
    ANY,
    DType,
    LayerConfig,
    OpenCLKernel,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    node_context,
    padded,
)
from dovetail.errors import OperatorError
from dovetail.op import KernelRefused, Port
from dovetail_gpu_opencl.halves import only_loads_and_stores
from dovetail_gpu_opencl.images import geometry, read_launch, refuse_image, write_launch
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Argument, Image, Launch, Null, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.program import ARGUMENT_INFO
from dovetail_gpu_opencl.source import C_TYPES
from dovetail_gpu_opencl.wide_vectors import refuse_wide_vectors

__all__ = ["OwnKernel"]

_NUMBERS: dict[str, Callable[[Any], np.generic]] = {"float": np.float32, "int": np.int32, "uint": np.uint32}


@dataclass(frozen=True, slots=True)
class _Place:
    """One input or output: the name of its port, the value's name and type (None when it is left out)."""

    port: str
    value: str
    tensor: TensorType | None


class OwnKernel(CLKernel):
    """The operator's own kernel: the first of its sources in OpenCL that this device and node allow."""

    name = "own"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False
    from_operator = True
    half_by_load = True  # `_refuse` reads the source
    arguments_hint = "the order is inputs, outputs, scratch buffers, scalars; what a node leaves out is NULL"

    def applies(self, node: TypedNode) -> Refusal | None:
        return None if _sources(node) else Refusal(Reason.OPERATOR, f"{node.op.key} provides no OpenCL kernel")

    def check(self, node: TypedNode) -> Refusal | None:
        found = self._source(node)
        return found if isinstance(found, Refusal) else None

    def title(self, node: TypedNode) -> str:
        return self._chosen(node)[1]

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        kernel, _ = self._chosen(node)
        inputs = [kernel.layout_of(place.port) for place in _inputs(node)][: len(node.inputs)]
        outputs = [kernel.layout_of(place.port) for place in _outputs(node) if place.value]
        return (LayerConfig(tuple(inputs), tuple(outputs)),)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not any(t.size for t in node.outputs):
            return ()
        kernel, entry = self._chosen(node)
        with node_context(node.node, node.inputs):
            work, local = kernel.work_sizes(node.inputs, node.outputs)
            scratch = kernel.scratch_bytes(node.inputs, node.outputs)
            text = kernel.define_lines(node.op, node.inputs, node.outputs) + kernel.source
            numbers = [Scalar(_NUMBERS[c_type](getattr(node.op, name))) for name, c_type in kernel.scalars]
        inputs = [_argument(kernel, p, f"image:{node.name}:input{i}", written=False) for i, p in enumerate(_inputs(node))]
        outputs = [_argument(kernel, p, f"image:{node.name}:output{i}", written=True) for i, p in enumerate(_outputs(node))]
        buffers = [Scratch(f"scratch:{node.name}:{i}", size) for i, size in enumerate(scratch)]
        arguments = (*inputs, *outputs, *buffers, *numbers)
        before = [write_launch(p.value, a) for p, a in zip(_inputs(node), inputs, strict=True) if isinstance(a, Image)]
        options = (ARGUMENT_INFO, *kernel.options)
        after = [read_launch(a, p.value) for p, a in zip(_outputs(node), outputs, strict=True) if isinstance(a, Image)]
        return (*before, Launch(kernel.origin, text, entry, arguments, work, local, options), *after)

    def _chosen(self, node: TypedNode) -> tuple[OpenCLKernel, str]:
        found = self._source(node)
        assert not isinstance(found, Refusal)
        return found

    def _source(self, node: TypedNode) -> tuple[OpenCLKernel, str] | Refusal:
        refusal = Refusal(Reason.OPERATOR)
        for kernel in _sources(node):
            entry = kernel.entry_for(_dtype(node))
            if entry is None:
                refusal = Refusal(Reason.DTYPE, f"the operator's kernel has no entry for {_dtype(node)}")
                continue
            with node_context(node.node, node.inputs):
                try:
                    found = self._refuse(kernel, node)
                except KernelRefused as refused:
                    found = Refusal(Reason.CONFIGURATION, str(refused))
            if found is None:
                return kernel, entry
            refusal = found
        return refusal

    def _refuse(self, kernel: OpenCLKernel, node: TypedNode) -> Refusal | None:
        _check_ports(kernel, node.op.inputs, node.op.outputs)
        missing = sorted(set(kernel.extensions) - self.caps.extensions)
        if missing:
            return Refusal(Reason.CAPABILITY, f"the device lacks the extension {', '.join(missing)}")
        for place in (*_inputs(node), *_outputs(node)):
            layout = kernel.layout_of(place.port)
            if place.tensor is not None and layout != ANY and not layout.fits(place.tensor.rank):
                return Refusal(Reason.LAYOUT, f"{layout} for {place.port!r}, which is {place.tensor}")
        if not any(t.size for t in node.outputs):
            return None
        for place in (*_inputs(node), *_outputs(node)):
            if place.port in kernel.images:
                refusal = refuse_image(place.port, kernel.images[place.port], _dims(kernel, place), place.tensor, self.caps)
                if refusal is not None:
                    return refusal
        text = kernel.define_lines(node.op, node.inputs, node.outputs) + kernel.source
        halves = any(t is not None and t.dtype is DType.FLOAT16 for t in (*node.inputs, *node.outputs))
        if halves and not self.caps.fp16 and (kernel.images or not only_loads_and_stores(text)):
            detail = "float16 needs cl_khr_fp16, unless the source uses halves by vload_half and vstore_half alone"
            return Refusal(Reason.CAPABILITY, detail)
        refusal = refuse_wide_vectors(text, self.caps)
        return self._refuse_sizes(kernel, node) if refusal is None else refusal

    def _refuse_sizes(self, kernel: OpenCLKernel, node: TypedNode) -> Refusal | None:
        _, local = kernel.work_sizes(node.inputs, node.outputs)
        most, limits = self.caps.max_work_group_size, self.caps.max_work_item_sizes
        # A local size has as many dimensions as the kernel; the device has a limit for each of three.
        if local and (math.prod(local) > most or any(n > m for n, m in zip(local, limits, strict=False))):
            accepted = f"{most} work items in a group, {limits} in its dimensions"
            return Refusal(Reason.CAPABILITY, f"the local size is {local}; the device takes at most {accepted}")
        largest = max(kernel.scratch_bytes(node.inputs, node.outputs), default=0)
        if largest > self.caps.max_allocation:
            return Refusal(Reason.MEMORY, f"{largest} bytes of scratch; the largest buffer has {self.caps.max_allocation}")
        return None


def _sources(node: TypedNode) -> Sequence[OpenCLKernel]:
    return [kernel for kernel in node.op.kernels if isinstance(kernel, OpenCLKernel)]


def _dtype(node: TypedNode) -> DType:
    return next(t for t in (*node.inputs, *node.outputs) if t is not None).dtype


def _inputs(node: TypedNode) -> list[_Place]:
    return [*_places(node.op.inputs, node.node.inputs, node.inputs)]


def _outputs(node: TypedNode) -> list[_Place]:
    present = iter(node.outputs)
    return [*_places(node.op.outputs, node.node.outputs, [next(present) if name else None for name in node.node.outputs])]


def _places(ports: Sequence[Port], names: Sequence[str], types: Sequence[TensorType | None]) -> Iterator[_Place]:
    """One for each argument; ports at the end that the node does not mention are left out too."""
    for index, (name, tensor) in enumerate(zip(padded(names, ports), padded(types, ports), strict=True)):
        yield _Place(ports[min(index, len(ports) - 1)].name, name or "", tensor)


def _check_ports(kernel: OpenCLKernel, *sides: Sequence[Port]) -> None:
    known = [port.name for side in sides for port in side]
    for what, names in (("layouts", kernel.layouts), ("images", kernel.images)):
        for name in names:
            if name not in known:
                raise OperatorError(f"{kernel.origin}: {what} name the port {name!r}", hint=f"known ports: {', '.join(known)}")
    for name in kernel.images:
        if kernel.layout_of(name) == ANY:
            raise OperatorError(f"{kernel.origin}: the image {name!r} has the layout ANY", hint="give it a layout")


def _dims(kernel: OpenCLKernel, place: _Place) -> tuple[int, ...]:
    """The shape in memory, in the layout that the kernel wants."""
    if place.tensor is None:
        return ()
    return tuple(place.tensor.dims[d] for d in kernel.layout_of(place.port).order(place.tensor.rank))


def _argument(kernel: OpenCLKernel, place: _Place, image: str, *, written: bool) -> Argument:
    if place.tensor is None:
        return Null()
    kind = kernel.images.get(place.port)
    if kind is None:
        return Write(place.value) if written else Read(place.value)
    return Image(image, place.tensor.dtype, *geometry(kind, _dims(kernel, place)), written)
