"""GELU in its forms."""

from dovetail.op import FLOATS, GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gelu import Gelu as StandardGelu
from dovetail_ops_onnx.swish import Swish
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node

__all__ = ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"]


class Gelu(MicrosoftOperator):
    """X / 2 * (1 + erf(X / sqrt(2)))."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def compose(self, g: GraphBuilder, x: str) -> str:
        """Gelu of the standard."""
        return node(g, StandardGelu(), x)


class FastGelu(MicrosoftOperator):
    """GELU of X + bias by its approximation with tanh."""

    inputs = ("X: T", "bias?: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def infer(self, X: TensorType, bias: TensorType | None = None) -> TensorType:
        """The type of X."""
        return _biased(X, bias)

    def compose(self, g: GraphBuilder, x: str, bias: str = "") -> str:
        """A sum and Gelu of the standard."""
        return node(g, StandardGelu(approximate="tanh"), node(g, Add(), x, bias) if bias else x)


class BiasGelu(MicrosoftOperator):
    """GELU of A + B, for a vector B."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": FLOATS}

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """The type of A."""
        return _biased(A, B)

    def compose(self, g: GraphBuilder, a: str, b: str) -> str:
        """A sum and Gelu of the standard."""
        return node(g, StandardGelu(), node(g, Add(), a, b))


class QuickGelu(MicrosoftOperator):
    """X / (1 + exp(-alpha X))."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    alpha: float = 1.702

    def compose(self, g: GraphBuilder, x: str) -> str:
        """Swish."""
        return node(g, Swish(alpha=self.alpha), x)


def _biased(x: TensorType, bias: TensorType | None) -> TensorType:
    if bias is not None and (not x.rank or bias.dims != x.dims[-1:]):
        raise ShapeError(f"the input is {x}, the bias {bias}; accepted: a vector as long as the last axis")
    return x.with_shape(x.dims)
