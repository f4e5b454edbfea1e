"""The quantizers of QONNX as an op pack, one a file. Loaded when a model has a node of domain `qonnx.custom_op.general`."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_qonnx.bipolar_quant import BipolarQuant
from dovetail_ops_qonnx.float_quant import FloatQuant
from dovetail_ops_qonnx.multi_threshold import MultiThreshold
from dovetail_ops_qonnx.quant import Quant
from dovetail_ops_qonnx.quant_lstm_cell import QuantLSTMCell
from dovetail_ops_qonnx.trunc import Trunc, Trunc_1

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = [
    "BipolarQuant",
    "FloatQuant",
    "MultiThreshold",
    "Quant",
    "QuantLSTMCell",
    "Trunc",
    "Trunc_1",
    "dovetail_api",
    "dovetail_register_ops",
]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of this pack that the domain has."""
    for operator in (BipolarQuant, FloatQuant, MultiThreshold, Quant, QuantLSTMCell, Trunc, Trunc_1):
        if domain in (operator.domain, *(name.domain for name in operator.translations)):
            registry.add(operator)
