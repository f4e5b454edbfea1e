"""QuantizedAttention: quantized_attention.cl."""

import math
import re

import numpy as np

from dovetail.device import DType, Node, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, round_up
from dovetail_gpu_opencl.kernels._bytes import has_matrix_units
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS
from dovetail_gpu_opencl.kernels._quantized import Scales, result_of
from dovetail_gpu_opencl.kernels._quantized_attention import QuantizedAttention
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, steps_behind, stored_bounds
from dovetail_gpu_opencl.launch import Argument, Launch, Local, Read, Scalar, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.quantized import Scaling

__all__ = ["KERNELS"]

_MOST = 2048
"""Keys for which every device has local memory."""
_HEAD, _ITEMS = 128, 128
_INT_MAX = 2**31 - 1
_NAMES = re.compile(
    r"\b(?:near_1|quick_1|value_1|rounded_1|rounded_product\d+_1|steps_1|factor|unit|divisor|qn|in\d+|step_n\w+)\b"
)


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
            self._parts(node)
        except Refused as error:
            return Refusal(Reason.ATTRIBUTE, str(error))
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        q, k, v, dst = *(node.given(i) for i in range(3)), node.outputs[0]
        if not dst.size:
            return ()
        op, keys = self._op(node), k.dims[1]
        defines, source, arguments = self._parts(node)
        zeros = [_zero(s) for s in (*op.scores.scalings[:2], *op.values.scalings[:2])]
        stored = [q.dtype, k.dtype, *(_dtype(one.result) for one in (op.scores, op.weights)), v.dtype]
        types: dict[str, object] = {"S_T": C_TYPES[stored.pop(2)]}
        for name, dtype in zip("QKWV", stored, strict=True):
            types |= {f"{name}_FORMAT": f'"{"s" if dtype is DType.INT8 else "u"}8"', f"{name}_T": C_TYPES[dtype]}
        sizes = {"QUERIES": q.dims[1], "KEYS": keys, "HEADS": q.dims[2]}
        sizes |= {f"{name}_ZERO": zero for name, zero in zip("QKWV", zeros, strict=True)}
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

    def _parts(self, node: TypedNode) -> tuple[dict[str, object], str, tuple[Argument, ...]]:
        """The functions that make stored numbers, as macros, their source and arguments. Raises `Refused`."""
        op, types = self._op(node), self._op(node).parts(*(t for t in node.inputs if t is not None))
        q, k, v, *operands = node.node.inputs
        args, source, arguments = "", "", list[Argument]()
        defines = dict[str, object]()
        products = (("SCORE", op.scores, (q, k, *operands), types[0]), ("VALUE", op.values, ("", v), types[2]))
        for name, part, names, (given, result) in products:
            typed = TypedNode(Node(node.name, part, tuple(names), ("",)), given, (result,))
            if None in part.scalings[:2]:
                raise Refused("factors that are not quantized")
            made, _ = result_of(Scales(typed, part, 1, 1.0, 1.0), self.caps, 1)
            prefix = f"{name.lower()}_"
            stored = str(made.defines["STORED(s, n, o)"]).replace("(s, n, ", "(s, 0, ").replace("(s, n)", "(s, 0)")
            defines[f"{name}(s, o)"] = f"((int){_named(stored, prefix)})"
            args += _named(str(made.defines["RESULT_ARGS"]), prefix)
            source += _named(made.source, prefix)
            arguments += made.own
        typed = TypedNode(Node(node.name, op.weights, ("",), ("",)), types[1][0], (types[1][1],))
        steps = steps_behind(typed, op.weights, 1, branches=True)
        defines["WEIGHT(w, o)"] = f"((int){_named(f'steps_1(w, o{steps.passed})', 'weight_')})"
        args += _named(steps.parameters, "weight_")
        defines["ARGS"] = args
        return defines, source + _named(steps.source, "weight_"), (*arguments, *steps.arguments)

    def _op(self, node: TypedNode) -> QuantizedAttention:
        assert isinstance(node.op, QuantizedAttention)
        return node.op


def _named(text: str, prefix: str) -> str:
    """The text with names that no other functions have."""
    return _NAMES.sub(lambda match: prefix + match[0], text)


def _zero(scaling: Scaling | None) -> int:
    assert scaling is not None
    return int(stored_bounds(scaling)[1])


def _dtype(scaling: Scaling | None) -> DType:
    assert scaling is not None
    return scaling.dtype


KERNELS = (AttentionOfBytes(),)
