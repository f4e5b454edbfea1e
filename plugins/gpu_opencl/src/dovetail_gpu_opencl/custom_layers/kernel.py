"""Runs the custom layer that the user gave for an operator."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import (
    PLAIN,
    AbstractOperator,
    LayerConfig,
    Layout,
    OpaqueOperator,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    node_context,
)
from dovetail.errors import OperatorError, UsageError
from dovetail.op import dimensions
from dovetail_gpu_opencl.custom_layers.registry import Layers
from dovetail_gpu_opencl.custom_layers.spec import DataArgument, Layer, TensorArgument
from dovetail_gpu_opencl.custom_layers.text import ORDERS, TensorText, assemble
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Null, Read, Write
from dovetail_gpu_opencl.program import ARGUMENT_INFO
from dovetail_gpu_opencl.source import C_TYPES
from dovetail_gpu_opencl.wide_vectors import refuse_wide_vectors

__all__ = ["CustomLayerKernel"]

RANK = 4
_SINGLE = "-cl-single-precision-constant"
_DOUBLE = "-cl-no-single-precision-constant"
"""OpenCL has no option that takes the other one back, so this one is ours."""
_MOST_CHOICES = 64


class CustomLayerKernel(CLKernel):
    """The kernel of a custom layer. It is asked before all others: whoever writes one wants it to run."""

    name = "custom layer"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False
    arguments_hint = "one for each Tensor and Data of the custom layer, in the order of arg-index"

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._texts: dict[str, str] = {}

    def applies(self, node: TypedNode) -> Refusal | None:
        found = self._layers.find(node.op.domain, node.op.op_type)
        return Refusal(Reason.OPERATOR, f"no custom layer for {node.op.key}") if found is None else None

    def check(self, node: TypedNode) -> Refusal | None:
        bound = self._bound(node)
        with node_context(node.node, node.inputs):
            refusal = bound.refused()
            if refusal is None:
                refusal = refuse_wide_vectors(bound.layer.source, self.caps)
            return self._refuse_sizes(bound) if refusal is None else refusal

    def title(self, node: TypedNode) -> str:
        return self._bound(node).layer.title

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return self._bound(node).configurations()

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not any(t.size for t in node.outputs):
            return ()
        bound = self._bound(node)
        layer = bound.layer
        with node_context(node.node, node.inputs):
            work, local = bound.work_sizes()
            text = self._text(layer, node.name, (attributes_of(node.op), bound.tensors(), work, local or ()))
            arguments = bound.arguments()
        words = layer.options.split()
        options = " ".join([ARGUMENT_INFO, *([] if _DOUBLE in words else [_SINGLE]), *(w for w in words if w != _DOUBLE)])
        return (Launch(layer.place, text, layer.entry, arguments, work, local, (options,)),)

    def _text(self, layer: Layer, node: str, rest: tuple[Any, ...]) -> str:
        """The source, which bears the name of the first node that has it: one program for each distinct set of parameters."""
        return self._texts.setdefault(assemble(layer, "", *rest), assemble(layer, node, *rest))

    def _bound(self, node: TypedNode) -> "_Bound":
        layer = self._layers.find(node.op.domain, node.op.op_type)
        assert layer is not None
        with node_context(node.node, node.inputs):
            return _Bound(layer, node)

    def _refuse_sizes(self, bound: "_Bound") -> Refusal | None:
        if not any(t.size for t in bound.node.outputs):
            return None
        _, local = bound.work_sizes()
        most, limits = self.caps.max_work_group_size, self.caps.max_work_item_sizes
        # A local size has as many dimensions as the kernel; the device has a limit for each of three.
        if local and (math.prod(local) > most or any(n > m for n, m in zip(local, limits, strict=False))):
            accepted = f"{most} work items in a group, {limits} in its dimensions"
            return Refusal(
                Reason.CAPABILITY, f"{bound.layer.work.place}: local size {local}; the device takes at most {accepted}"
            )
        return None


class _Bound:
    """A layer with a node: which value is which argument. Raises `OperatorError` where they do not fit, with file and line."""

    def __init__(self, layer: Layer, node: TypedNode) -> None:
        self.layer, self.node = layer, node
        tensors = [a for a in layer.arguments if isinstance(a, TensorArgument)]
        self._formats = {(a.is_output, a.port): a.format for a in tensors}
        for argument in tensors:
            self._check_port(argument)
        bound = {a.port for a in tensors if a.is_output}
        for port, name in enumerate(node.node.outputs):
            if name and port not in bound:
                raise OperatorError(
                    f"{layer.place}: output {port} of the node is bound to no argument", hint="bind it by a Tensor"
                )
        self._data = {a: self._constant(a) for a in layer.arguments if isinstance(a, DataArgument)}

    def refused(self) -> Refusal | None:
        """Ranks and layouts that the format has no words for."""
        for argument in self.layer.arguments:
            tensor = self._tensor(argument) if isinstance(argument, TensorArgument) else None
            if tensor is None or not isinstance(argument, TensorArgument):
                continue
            if tensor.rank > RANK:
                return Refusal(Reason.SHAPE, f"{argument.place}: {tensor} has more than {RANK} dimensions")
        return None if self.configurations() else Refusal(Reason.LAYOUT, f"{self.layer.place}: {self._misfit()}")

    def configurations(self) -> tuple[LayerConfig, ...]:
        """For each input that may come as it likes all permutations; outputs of format ANY follow the first input."""
        inputs = [self._choices(False, port, tensor) for port, tensor in enumerate(self.node.inputs)]
        if math.prod(len(choices) for choices in inputs) > _MOST_CHOICES:  # then all that may come as they like come alike
            inputs = [choices[:1] for choices in inputs]
        found = []
        for chosen in itertools.product(*inputs):
            outputs = [self._output(port, tensor, chosen) for port, tensor in self._outputs()]
            if all(layout is not None for layout in outputs):
                found.append(LayerConfig(tuple(chosen), tuple(layout for layout in outputs if layout is not None)))
        return tuple(found)

    def work_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Global and local size. Raises `OperatorError` with file, line and formula."""
        work, node = self.layer.work, self.node
        if work.input is not None and (work.input >= len(node.inputs) or node.inputs[work.input] is None):
            raise OperatorError(f"{work.place}: dim is input {work.input}; {self._ports(False)}")
        measured = node.outputs[0] if work.input is None else node.inputs[work.input]
        assert measured is not None
        try:
            if work.global_size is None:
                global_size: tuple[int, ...] = (node.outputs[0].size,)
            else:
                global_size = work.global_size.evaluate(dimensions(measured.dims))
            local_size = None if work.local_size is None else work.local_size.evaluate(dimensions(measured.dims))
        except UsageError as error:
            raise OperatorError(f"{work.place}: {error.message} for {measured}", hint=error.hint) from None
        self._check_sizes(global_size, local_size)
        return global_size, local_size

    def _check_sizes(self, global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        work = self.layer.work
        texts = {"global": (work.global_size, global_size), "local": (work.local_size, local_size or (1,))}
        for what, (size, numbers) in texts.items():
            if any(n < 1 for n in numbers):
                text = size.text if size else ""
                raise OperatorError(f"{work.place}: {what}={text!r} gives {numbers}", hint="accepted: positive numbers")
        if local_size and any(g % n for g, n in zip(global_size, local_size, strict=True)):
            raise OperatorError(
                f"{work.place}: the global size {global_size} is not a multiple of the local size {local_size}",
                hint="round it up, as in ((X+31)/32)*32, and let the kernel leave out what is too much",
            )

    def tensors(self) -> list[TensorText]:
        """The defines: each input and output of the node, then arrays that are attributes."""
        inputs = [(f"INPUT{i}", (False, i), t) for i, t in enumerate(self.node.inputs)]
        outputs = [(f"OUTPUT{i}", (True, i), t) for i, t in self._outputs()]
        arrays = [found for found in self._data.values() if not isinstance(found, str)]
        first = len(self.node.inputs)
        data = [TensorText(f"INPUT{first + i}", _filled(a.shape), C_TYPES[_dtype(a)]) for i, a in enumerate(arrays)]
        return [
            *(self._text(name, port, t) for name, port, t in inputs if t is not None),
            *data,
            *(self._text(name, port, t) for name, port, t in outputs),
        ]

    def arguments(self) -> tuple[Argument, ...]:
        """The arguments of the kernel function."""
        return tuple(self._argument(argument) for argument in self.layer.arguments)

    def _argument(self, argument: TensorArgument | DataArgument) -> Argument:
        if isinstance(argument, DataArgument):
            found = self._data[argument]
            return Read(found) if isinstance(found, str) else Constant(found)
        node = self.node.node
        names = node.outputs if argument.is_output else node.inputs
        if not names[argument.port]:
            return Null()
        return Write(names[argument.port]) if argument.is_output else Read(names[argument.port])

    def _check_port(self, argument: TensorArgument) -> None:
        names = self.node.node.outputs if argument.is_output else self.node.node.inputs
        if argument.port >= len(names):
            what = f"{'output' if argument.is_output else 'input'} port-index {argument.port} is out of range"
            raise OperatorError(f"{argument.place}: {what}; {self._ports(argument.is_output)}")

    def _ports(self, outputs: bool) -> str:
        count = len(self.node.node.outputs if outputs else self.node.node.inputs)
        return f"the node has {count} {'output' if outputs else 'input'}{'' if count == 1 else 's'}"

    def _tensor(self, argument: TensorArgument) -> TensorType | None:
        if not argument.is_output:
            return self.node.inputs[argument.port]
        return dict(self._outputs()).get(argument.port)

    def _outputs(self) -> list[tuple[int, TensorType]]:
        ports = [port for port, name in enumerate(self.node.node.outputs) if name]
        return list(zip(ports, self.node.outputs, strict=True))

    def _choices(self, is_output: bool, port: int, tensor: TensorType | None) -> list[Layout]:
        asked = self._formats.get((is_output, port), "BFYX")
        if tensor is None:
            return [PLAIN]
        names = ORDERS if asked == "ANY" else (asked,)
        fitting = [layout for name in names if (layout := _layout(name, tensor.rank)) is not None]
        return list(dict.fromkeys(fitting))

    def _output(self, port: int, tensor: TensorType, inputs: Sequence[Layout]) -> Layout | None:
        if self._formats.get((True, port)) == "ANY":
            inherited = inputs[0] if inputs else PLAIN
            return inherited if inherited.fits(tensor.rank) else None
        return next(iter(self._choices(True, port, tensor)), None)

    def _misfit(self) -> str:
        shown = {
            f"{'output' if out else 'input'} {port}": f for (out, port), f in self._formats.items() if f not in ("BFYX", "ANY")
        }
        formats = ", ".join(f"{name}: {f}" for name, f in shown.items())
        return f"formats {formats} for tensors of fewer than {RANK} dimensions, which have only BFYX and ANY"

    def _text(self, name: str, port: tuple[bool, int], tensor: TensorType) -> TensorText:
        asked = self._formats.get(port, "BFYX")
        actual = "BFYX" if tensor.layout == PLAIN else tensor.layout.name
        return TensorText(name, _filled(tensor.dims), C_TYPES[tensor.dtype], actual if asked == "ANY" else asked, asked == "ANY")

    def _constant(self, argument: DataArgument) -> str | NDArray[Any]:
        """The name of the constant input that is meant, or an array that is an attribute."""
        node = self.node
        constants = {
            i: n for i, (n, t) in enumerate(zip(node.node.inputs, node.inputs, strict=True)) if t and t.value is not None
        }
        attribute = attributes_of(node.op).get(argument.name)
        if isinstance(attribute, np.ndarray) and argument.name not in constants.values():
            if _dtype(attribute) not in C_TYPES:
                raise OperatorError(f"{argument.place}: the attribute {argument.name!r} holds {attribute.dtype}")
            return np.ascontiguousarray(attribute)
        ports = _port_names(node.op)
        called = {i: {n, n.rpartition("/")[2], n.rpartition(".")[2], ports[min(i, len(ports) - 1)]} for i, n in constants.items()}
        exact = [i for i, n in constants.items() if n == argument.name]
        found = exact or [i for i, names in called.items() if argument.name in names]
        if len(found) != 1:
            known = ", ".join(constants.values()) or "none"
            what = "several constants" if found else "no constant"
            raise OperatorError(
                f"{argument.place}: {what} of the node is called {argument.name!r}", hint=f"its constant inputs: {known}"
            )
        if self._formats.get((False, found[0]), "BFYX") != "BFYX":
            raise OperatorError(f"{argument.place}: {argument.name!r} is also a Tensor in another format than BFYX")
        return constants[found[0]]


def attributes_of(op: AbstractOperator) -> Mapping[str, Any]:
    """The attributes of an operator by name, as a model gives them where no class defines it."""
    return op.raw if isinstance(op, OpaqueOperator) else {name: getattr(op, name) for name in op.attributes}


def _port_names(op: AbstractOperator) -> Sequence[str]:
    known = op.known if isinstance(op, OpaqueOperator) else op
    return [port.name for port in known.inputs] if known is not None and known.inputs else [""]


def _layout(name: str, rank: int) -> Layout | None:
    """The layout of a format; where dimensions are missing at the end, many formats are the plain one."""
    layout = Layout.of(name)
    if layout.fits(rank):
        return layout
    present = [d for d in ORDERS[name] if d < rank]
    return PLAIN if present == sorted(present) else None


def _filled(dims: Sequence[int]) -> tuple[int, ...]:
    return (*dims, *(1,) * (RANK - len(dims)))


def _dtype(array: NDArray[Any]) -> Any:
    return TensorType.of(array).dtype
