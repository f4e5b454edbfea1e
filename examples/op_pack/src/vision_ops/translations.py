"""Operators of others that dovetail has under another name, or as a few of its own: these need no class."""

from typing import Any

from dovetail.op import GraphBuilder, Translation
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sigmoid import Sigmoid

__all__ = ["TRANSLATIONS"]


def swish(g: GraphBuilder, X: str, *, beta: float = 1.0) -> Any:
    """X * sigmoid(beta * X)."""
    known = g.type_of(X)
    assert known is not None
    return g.node(Mul(), X, g.node(Sigmoid(), g.node(Mul(), X, g.constant(beta, known.dtype))))


TRANSLATIONS = (
    Translation(domain="com.example.exporter", op_type="LeakyReLU", to=LeakyRelu, attributes={"negative_slope": "alpha"}),
    Translation(domain="com.example.exporter", op_type="Swish2", to=swish, attributes={"scale": "beta"}),
    Translation(domain="extension", op_type="Swish2", to=swish, attributes={"scale": "beta"}),
)
