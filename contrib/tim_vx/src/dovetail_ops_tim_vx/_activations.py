"""The activations of TIM-VX's recurrent operators, by name, as standard operators."""

from dovetail.errors import did_you_mean
from dovetail.op import DType, GraphBuilder, Operator, OperatorError
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh

__all__ = ["ACTIVATIONS", "activate", "check_activation", "clip"]

_PLAIN: dict[str, Operator] = {
    "relu": Relu(),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "hard_sigmoid": HardSigmoid(),
}
_CLIPPED = {"relu1": (-1.0, 1.0), "relu6": (0.0, 6.0)}

ACTIVATIONS = ("none", "relu", "relu1", "relu6", "tanh", "sigmoid", "hard_sigmoid")
"""TIM-VX's ActivationType. relu1 limits to -1 ... 1, relu6 to 0 ... 6; hard_sigmoid is clip(0.2 x + 0.5, 0, 1)."""


def check_activation(name: str, attribute: str = "activation") -> None:
    """Raise `OperatorError` for an activation that is not one of `ACTIVATIONS`."""
    if name not in ACTIVATIONS:
        raise OperatorError(
            f"attribute {attribute!r} is {name!r}; accepted: {', '.join(ACTIVATIONS)}", hint=did_you_mean(name, ACTIVATIONS)
        )


def activate(g: GraphBuilder, activation: str, x: str, dtype: DType, name: str = "") -> str:
    """Add the activation of value `x`, of type `dtype`, as a node called `name` (default: its operator). `none` is x itself."""
    if activation in _CLIPPED:
        return clip(g, x, *_CLIPPED[activation], dtype, name or activation)
    if activation == "none":
        return x
    result: str = g.node(_PLAIN[activation], x, name=name)
    return result


def clip(g: GraphBuilder, x: str, low: float, high: float, dtype: DType, name: str = "clip") -> str:
    """Add a node that limits `x`, of type `dtype`, to low ... high."""
    result: str = g.node(Clip(), x, g.constant(low, dtype, "low"), g.constant(high, dtype, "high"), name=name)
    return result
