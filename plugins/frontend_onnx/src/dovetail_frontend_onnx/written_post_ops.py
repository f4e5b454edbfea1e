"""Post-ops as ONNX nodes, because ONNX has no chains on nodes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.frontend import FormatError, Node, UnboundOperator

__all__ = ["expanded"]

_PLAIN = {
    "abs": "Abs", "ceil": "Ceil", "cos": "Cos", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "logistic": "Sigmoid",
    "mish": "Mish", "round": "Round", "sign": "Sign", "sin": "Sin", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "rsub": "Sub", "rdiv": "Div"}


def expanded(node: Node, free: Callable[[str], str], version: int) -> list[Node]:
    """The node without its chain, and one node for each post-op. Raises `FormatError` for what no single operator expresses."""
    if not node.post_ops:
        return [node]
    values = [free(f"{node.outputs[0]}/{index}") for index in range(len(node.post_ops))] + [node.outputs[0]]
    found = [replace(node, outputs=(values[0], *node.outputs[1:]), post_ops=())]
    for index, post_op in enumerate(node.post_ops):
        op_type, raw, inputs = _node(node, post_op, values[index])
        name = f"{node.name}/{index}_{op_type}"
        found.append(Node(name, UnboundOperator("", op_type, version, raw), inputs, (values[index + 1],)))
    return found


def _node(node: Node, post_op: Any, value: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    if post_op.kind == "binary":
        operands = (value, post_op.operand)
        return _BINARY[post_op.algorithm], {}, operands[::-1] if post_op.algorithm in ("rsub", "rdiv") else operands
    if post_op.kind == "prelu":
        return "PRelu", {}, (value, post_op.operand)
    if post_op.kind == "sum" and (post_op.scale, post_op.zero_point) == (1, 0):
        return "Add", {}, (value, post_op.operand)
    if post_op.kind == "eltwise" and post_op.scale == 1:
        if post_op.algorithm in _PLAIN:
            return _PLAIN[post_op.algorithm], {}, (value,)
        if post_op.algorithm == "relu":
            return ("LeakyRelu", {"alpha": post_op.alpha}, (value,)) if post_op.alpha else ("Relu", {}, (value,))
        if post_op.algorithm == "elu":
            return "Elu", {"alpha": post_op.alpha}, (value,)
        if post_op.algorithm == "hardsigmoid":
            return "HardSigmoid", {"alpha": post_op.alpha, "beta": post_op.beta}, (value,)
    raise FormatError(f"node {node} has the post-op {post_op}, for which ONNX has no operator", hint="write it without post-ops")
