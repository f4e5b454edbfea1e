"""Softmax and LayerNormalization of 8-bit numbers: the kernels of floats with stored_rows.cl, which reads and writes these."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail.op import Operator
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._bytes import VECTOR, has_matrix_units
from dovetail_gpu_opencl.kernels._pipelined import load_defines
from dovetail_gpu_opencl.kernels._quantized import QuantizedKernel
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, Steps, steps_behind, stored_bounds
from dovetail_gpu_opencl.kernels._rows import row_defines
from dovetail_gpu_opencl.kernels.layer_normalization import MOST
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble, literal, load, storage
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.quantized import QuantizedStep, Scaling
from dovetail_ops_onnx.softmax import Softmax

__all__ = ["QuantizedLayerNormalization", "QuantizedSoftmax"]

_ITEMS, _ROWS, _VECTOR = 32, 4, 4
"""On GPUs: the items of a row, the rows of a work group, and the elements that an item reads at once, for rows of any size."""


class QuantizedRows(QuantizedKernel):
    """The base of both. Rows are dense."""

    main: ClassVar[type[Operator]]
    file: ClassVar[str]
    by_content = False

    def applies(self, node: TypedNode) -> Refusal | None:
        op = self.op(node)
        return None if type(op.main) is self.main else Refusal(Reason.OPERATOR, op.key)

    @abstractmethod
    def vec(self, node: TypedNode) -> int:
        """The elements that are computed at once."""

    def parts(self, node: TypedNode) -> Steps:
        """The steps behind the rows. Raises `Refused`."""
        op = self.op(node)
        if op.scalings[0] is None:
            raise Refused("rows of real numbers")
        stored_bounds(op.scalings[0])
        return steps_behind(node, op, self.vec(node), branches=self.caps.kind == "GPU")

    def launch(
        self, node: TypedNode, defines: Mapping[str, object], arguments: Sequence[Argument], groups: int, local: int
    ) -> Launch:
        """The launch of so many work groups; `arguments` are those before the quantization's."""
        steps, source = self.parts(node), self.op(node).scalings[0]
        assert source is not None
        own = {
            **storage(DType.FLOAT32),
            "ACC": "float",
            "X": C_TYPES[node.given(0).dtype],
            "Y": C_TYPES[node.outputs[0].dtype],
            "VEC": self.vec(node),
            "POST_ARGS": steps.parameters,
            "POST(s, o)": f"steps_1(s, o{steps.passed})",
            "POST_V(s, o)": f"steps_v(s, o{steps.passed})",
        }
        text = assemble(self.file, {**own, **defines}, steps.source)
        passed, entry = (*arguments, _numbers(source), *steps.arguments), self.file.removesuffix(".cl")
        return Launch(self.file, text, entry, passed, (groups * local,), (local,), self.caps.exact_options)


class QuantizedSoftmax(QuantizedRows):
    """Softmax along the last axis."""

    name = "quantized_softmax"
    main = Softmax
    file = "softmax.cl"

    def check(self, node: TypedNode) -> Refusal | None:
        axis, rank = self._softmax(node).axis, node.given(0).rank
        if axis % max(rank, 1) != rank - 1:
            return Refusal(Reason.ATTRIBUTE, f"axis {axis} of {rank}; accepted: the last")
        return super().check(node)

    def vec(self, node: TypedNode) -> int:
        return self.caps.lanes("float") if self.caps.kind == "CPU" else _VECTOR

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        if not dst.size:
            return ()
        rows, is_cpu = dst.size // dst.dims[-1], self.caps.kind == "CPU"
        group, at_once = (1, 1) if is_cpu else (_ITEMS, _ROWS)
        numbers = {"SIZE": dst.dims[-1], "COUNT": rows}
        defines, sizes = by_value(numbers, ("SIZE",) if is_cpu else ("SIZE", "COUNT"))
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *sizes)
        tunables = {"INNER": 1, "GROUP": group, "ROWS": at_once}
        return (self.launch(node, {**defines, **tunables}, arguments, ceil_div(rows, at_once), group * at_once),)

    def _softmax(self, node: TypedNode) -> Softmax:
        main = self.op(node).main
        assert isinstance(main, Softmax)
        return main


class QuantizedLayerNormalization(QuantizedRows):
    """LayerNormalization by constants, whose stored numbers are made real once."""

    name = "quantized_layer_normalization"
    main = LayerNormalization
    file = "layer_normalization.cl"

    def check(self, node: TypedNode) -> Refusal | None:
        size = self._rows(node).size
        for name, index in zip(("Scale", "B"), self._parameters(node), strict=False):
            tensor = node.given(index)
            if tensor.value is None or tensor.size != size:
                return Refusal(
                    Reason.SHAPE, f"{name} is {tensor}; accepted: a constant of {size} elements, one for each of a row"
                )
        return super().check(node)

    def vec(self, node: TypedNode) -> int:
        return VECTOR if self._in_registers(node) else row_defines(self._rows(node), DType.FLOAT32, self.caps)["VEC"]

    def _in_registers(self, node: TypedNode) -> bool:
        """Whether layer_normalization_halves.cl, whose sub-groups have rows in registers, takes them."""
        size = self._rows(node).size
        return has_matrix_units(self.caps) and size % VECTOR == 0 and size <= MOST

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        rows = self._rows(node)
        if not rows.count * rows.size:
            return ()
        if self._in_registers(node):
            return (self._registers(node, rows),)
        numbers, parameters = row_defines(rows, DType.FLOAT32, self.caps), self._parameters(node)
        op, names = self.op(node).main, node.node
        assert isinstance(op, LayerNormalization)
        constants = [Constant(self.packed.same(self._real(node, index).tobytes())) for index in parameters]
        arguments: tuple[Argument, ...] = (Read(names.inputs[0]), *constants, Write(names.outputs[0]))
        defines = {**numbers, "EPSILON": literal(op.epsilon, "float"), "HAS_BIAS": len(parameters) > 1}
        return (self.launch(node, defines, arguments, rows.count, numbers["GROUP"]),)

    def _registers(self, node: TypedNode, rows: Lines) -> Launch:
        steps, source, dst = self.parts(node), self.op(node).scalings[0], node.outputs[0]
        op, x, y = self.op(node).main, C_TYPES[node.given(0).dtype], C_TYPES[dst.dtype]
        assert source is not None
        assert isinstance(op, LayerNormalization)
        constants = [Constant(self._real(node, index)) for index in self._parameters(node)]
        defines = {
            "HALF_STORAGE": True,
            "SIZE": rows.size,
            "ROWS": _ROWS,
            "EPSILON": literal(op.epsilon, "float"),
            "HAS_BIAS": len(constants) > 1,
            **load_defines("P_T", DType.FLOAT32),
            "SOURCE_ARGS": f"__global const {x}* restrict src, __global const float* restrict x_numbers",
            "SOURCE(c)": f"((convert_float8(*(__global const {x}8*)(src + at * SIZE + (c))) - x_numbers[1]) * x_numbers[0])",
            "PLACES": "",
            "RESULT_T": y,
            "STORE_V(v, p)": f"(*(__global {y}8*)(p) = convert_{y}8(v))",
            "POST_ARGS": steps.parameters,
            "POST_V(s, o)": f"steps_v(s, o{steps.passed})",
        }
        values: tuple[Argument, ...] = (Read(node.node.inputs[0]), _numbers(source), *constants, Write(node.node.outputs[0]))
        file, work = "layer_normalization_halves.cl", ceil_div(rows.count, _ROWS) * _ROWS * _ITEMS
        text = assemble(file, defines, load("halves.cl"), steps.source)
        passed = (*values, *ints(rows.count), *steps.arguments)
        return Launch(file, text, file.removesuffix(".cl"), passed, (work,), (_ROWS * _ITEMS,), self.caps.exact_options)

    def _rows(self, node: TypedNode) -> Lines:
        op = self.op(node).main
        assert isinstance(op, LayerNormalization)
        return Lines.of(node.outputs[0].dims, op.axis, to_end=True)

    def _parameters(self, node: TypedNode) -> tuple[int, ...]:
        """Which inputs are Scale and B, as far as they are there."""
        step = self.op(node).steps[0]
        assert isinstance(step, QuantizedStep)
        return tuple(index for index in step.inputs[1:] if index is not None)

    def _real(self, node: TypedNode, index: int) -> NDArray[np.float32]:
        """The real numbers of a constant."""
        value, scaling = node.given(index).value, self.op(node).scalings[index]
        assert value is not None
        if scaling is None:
            return value.astype(np.float32)
        zeros, scales = scaling.zero_point.reshape(-1).astype(np.float32), scaling.scale.reshape(-1)
        found: NDArray[np.float32] = (value.reshape(-1).astype(np.float32) - zeros) * scales
        return found


def _numbers(source: Scaling) -> Constant:
    """Scale and zero point, as an array: layers with others then share a launch."""
    return Constant(np.array(stored_bounds(source)[:2], np.float32))
