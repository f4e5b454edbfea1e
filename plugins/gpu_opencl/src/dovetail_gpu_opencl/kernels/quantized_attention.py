"""QuantizedAttention: quantized_attention.cl."""

import math
import re
from functools import partial

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import DType, Node, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, round_up
from dovetail_gpu_opencl.kernels._bytes import has_matrix_units
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS
from dovetail_gpu_opencl.kernels._quantized import Scales, result_of
from dovetail_gpu_opencl.kernels._quantized_attention import QuantizedAttention
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, reading_of, steps_behind, stored_bounds
from dovetail_gpu_opencl.launch import Argument, Launch, Local, Read, Scalar, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.quantized import Quantized, Scaling

__all__ = ["KERNELS"]

_MOST = 2048
"""Keys for which every device has local memory."""
_HEAD, _ITEMS = 128, 128
_INT_MAX = 2**31 - 1
_FUNCTIONS = re.compile(r"\b(?:near_1|quick_1|value_1|bounded_1|rounded_1|rounded_product\d+_1|steps_1)\b")
_ARGUMENTS = re.compile(r"\b(?:factor|unit|divisor|qn|in\d+|step_n\w+)\b")


class AttentionOfBytes(CLKernel):
    """For GPUs whose matrix units take 8-bit numbers."""

    name = "quantized_attention"
    has_epilogue = False
    dtypes = EIGHT_BITS | {DType.FLOAT32}

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU" or not has_matrix_units(self.caps):
            return Refusal(Reason.CAPABILITY, "made for GPUs whose matrix units take 8-bit numbers")
        q, k, v = (node.given(i) for i in range(3))
        if q.dims[3] % 32 or v.dims[3] % 8 or not 0 < q.dims[3] <= _HEAD or not 0 < v.dims[3] <= _HEAD:
            return Refusal(Reason.SHAPE, f"heads of {q.dims[3]} and {v.dims[3]}; accepted: multiples of 32 and 8 up to {_HEAD}")
        if not 0 < k.dims[1] <= _MOST:
            return Refusal(Reason.SHAPE, f"{k.dims[1]} keys; accepted: 1 to {_MOST}")
        scores = math.prod(q.dims[:3]) * k.dims[1]
        if scores > _INT_MAX:  # which are no value of the graph, so that no other check sees them
            return Refusal(Reason.SHAPE, f"{scores} scores; accepted: {_INT_MAX}, as places of operands are ints")
        try:
            self._functions(node)
        except Refused as error:
            return Refusal(Reason.ATTRIBUTE, str(error))
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        q, k, v, dst = *(node.given(i) for i in range(3)), node.outputs[0]
        if not dst.size:
            return ()
        op, keys = self._op(node), k.dims[1]
        defines, source, arguments = self._functions(node)
        zeros = [_zero(s) for s in (*op.scores.scalings[:2], *op.values.scalings[:2])]
        stored = [q.dtype, k.dtype, *(_dtype(one.result) for one in (op.scores, op.weights)), v.dtype]
        types: dict[str, object] = {"S_T": C_TYPES[stored.pop(2)]}
        for name, dtype in zip("QKWV", stored, strict=True):
            types |= {f"{name}_FORMAT": f'"{"s" if dtype is DType.INT8 else "u"}8"', f"{name}_T": C_TYPES[dtype]}
        sizes = {"QUERIES": q.dims[1], "KEYS": keys, "HEADS": q.dims[2]}
        sizes |= {f"{name}_ZERO": zero for name, zero in zip("QKWV", zeros, strict=True)}
        _, heads, queries, _ = dims = _steps_dims(node)
        sizes |= {"S_BATCH": math.prod(dims[1:]), "S_HEAD": queries * keys * (heads > 1), "S_QUERY": keys * (queries > 1)}
        own = {"D": q.dims[3], "DV": v.dims[3], "HAS_W_ZERO": bool(zeros[2]), "MATRIX_UNITS": self.caps.ptx}
        sized, numbers = by_value({**types, **own, **defines, **sizes}, tuple(sizes))
        scaling, file = op.weights.scalings[0], "quantized_attention.cl"
        assert scaling is not None
        exponent = Scalar(np.float32(stored_bounds(scaling)[0] * math.log2(math.e)))
        sized["SIZES"] = f"{sized['SIZES']}, const float EXPONENT"
        names = node.node
        scores = Local(16 * (round_up(keys, 32) + 16))
        given: tuple[Argument, ...] = (*(Read(name) for name in names.inputs[:3]), Write(names.outputs[0]), scores)
        passed, groups = (*given, *numbers, exponent, *arguments), q.dims[0] * q.dims[2] * ceil_div(q.dims[1], 16)
        text = assemble(file, sized, source)
        return (Launch(file, text, self.name, passed, (groups * _ITEMS,), (_ITEMS,), self.caps.exact_options),)

    def _functions(self, node: TypedNode) -> tuple[dict[str, object], str, tuple[Argument, ...]]:
        result = TensorType(DType.FLOAT32, _steps_dims(node))
        key = tuple(reading_of(tensor, result) for tensor in node.inputs[3:])
        return self.packed.once(self.name, node, key, lambda: self._generated(node))

    def _generated(self, node: TypedNode) -> tuple[dict[str, object], str, tuple[Argument, ...]]:
        """The functions that make stored numbers, as macros, their source and arguments. Raises `Refused`.

        Those of `QUICK_` macros give floats, and NaN where they are not sure.
        """
        op, types = self._op(node), self._op(node).parts(*(t for t in node.inputs if t is not None))
        q, k, v, *operands = node.node.inputs
        scores = types[0][1].with_shape(_steps_dims(node))
        stages = {
            "SCORE": partial(self._product, Node(node.name, op.scores, (q, k, *operands), ("",)), types[0][0], scores),
            "WEIGHT": partial(_weights, Node(node.name, op.weights, ("",), ("",)), *types[1]),
            "VALUE": partial(self._product, Node(node.name, op.values, ("", v), ("",)), *types[2]),
        }
        args, source, arguments, defines = "", "", list[Argument](), dict[str, object]()
        for name, make in stages.items():
            prefix = f"{name.lower()}_"
            made = make(quick=False)
            defines[f"{name}(s, o)"] = f"((int){_named(made.call, prefix)})"
            args += _named(made.parameters, prefix)
            source += _named(made.source, prefix)
            arguments += made.arguments
            try:
                made = make(quick=True)
            except Refused:
                defines[f"QUICK_{name}(s, o)"] = "NAN"
            else:
                defines[f"QUICK_{name}(s, o)"] = f"({_named(made.call, prefix, 'quick_')})"
                source += _named(made.source, prefix, "quick_")
        defines["ARGS"] = args
        return defines, source, tuple(arguments)

    def _product(self, node: Node, given: tuple[TensorType, ...], result: TensorType, *, quick: bool) -> "_Made":
        assert isinstance(node.op, Quantized)
        if None in node.op.scalings[:2]:
            raise Refused("factors that are not quantized")
        scales = Scales(TypedNode(node, given, (result,)), node.op, 1, 1.0, 1.0)
        made, _ = result_of(scales, self.caps, 1, quick=quick)
        call = str(made.defines["STORED(s, n, o)"]).replace("(s, n, ", "(s, 0, ").replace("(s, n)", "(s, 0)")
        return _Made(call, made.source, str(made.defines["RESULT_ARGS"]), made.own)

    def _op(self, node: TypedNode) -> QuantizedAttention:
        assert isinstance(node.op, QuantizedAttention)
        return node.op


@dataclass(frozen=True, slots=True)
class _Made:
    """The call of a function of a number `s` and a place `o`, its source, and its other parameters with their arguments."""

    call: str
    source: str
    parameters: str
    arguments: tuple[Argument, ...]


def _weights(node: Node, given: tuple[TensorType, ...], result: TensorType, *, quick: bool) -> _Made:
    assert isinstance(node.op, Quantized)
    steps = steps_behind(TypedNode(node, given, (result,)), node.op, 1, branches=True, quick=quick)
    return _Made(f"steps_1(s, o{steps.passed})", steps.source, steps.parameters, steps.arguments)


def _steps_dims(node: TypedNode) -> tuple[int, int, int, int]:
    """The dims of scores [batch, heads, queries, keys], but 1 for heads and queries where no operand has its own for each."""
    q, k = node.given(0), node.given(1)
    operands = [node.given(i).dims for i in range(3, len(node.inputs))]
    heads, queries = (max([1, *(dims[axis] for dims in operands if len(dims) >= -axis)]) for axis in (-3, -2))
    return q.dims[0], heads, queries, k.dims[1]


def _named(text: str, prefix: str, of_functions: str = "") -> str:
    """The text with names that no other functions have."""
    text = _FUNCTIONS.sub(lambda match: of_functions + prefix + match[0], text)
    return _ARGUMENTS.sub(lambda match: prefix + match[0], text)


def _zero(scaling: Scaling | None) -> int:
    assert scaling is not None
    return int(stored_bounds(scaling)[1])


def _dtype(scaling: Scaling | None) -> DType:
    assert scaling is not None
    return scaling.dtype


KERNELS = (AttentionOfBytes(),)
