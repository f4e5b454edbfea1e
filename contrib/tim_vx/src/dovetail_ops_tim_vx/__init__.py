"""The operators of TIM-VX as an op pack: domain `tim.vx`, one operator a file. Loaded when a model has a node of that domain."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_tim_vx.bidirectional_sequence_lstm import BidirectionalSequenceLstm
from dovetail_ops_tim_vx.bidirectional_sequence_rnn import BidirectionalSequenceRnn
from dovetail_ops_tim_vx.bidirectional_sequence_rnn_ext import BidirectionalSequenceRnnExt
from dovetail_ops_tim_vx.detection_post_process import DetectionPostProcess
from dovetail_ops_tim_vx.gemm import Gemm
from dovetail_ops_tim_vx.h_swish import HSwish
from dovetail_ops_tim_vx.maxpool_grad import MaxpoolGrad
from dovetail_ops_tim_vx.rnn_cell import RNNCell
from dovetail_ops_tim_vx.softmax import Softmax
from dovetail_ops_tim_vx.unidirectional_sequence_rnn import UnidirectionalSequenceRnn
from dovetail_ops_tim_vx.unidirectional_sequence_rnn_ext import UnidirectionalSequenceRnnExt

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.op import Operator

__all__ = [
    "BidirectionalSequenceLstm",
    "BidirectionalSequenceRnn",
    "BidirectionalSequenceRnnExt",
    "DetectionPostProcess",
    "Gemm",
    "HSwish",
    "MaxpoolGrad",
    "RNNCell",
    "Softmax",
    "UnidirectionalSequenceRnn",
    "UnidirectionalSequenceRnnExt",
]

OPERATORS: "tuple[type[Operator], ...]" = (
    BidirectionalSequenceLstm,
    BidirectionalSequenceRnn,
    BidirectionalSequenceRnnExt,
    DetectionPostProcess,
    Gemm,
    HSwish,
    MaxpoolGrad,
    RNNCell,
    Softmax,
    UnidirectionalSequenceRnn,
    UnidirectionalSequenceRnnExt,
)

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of this pack."""
    for operator in OPERATORS:
        registry.add(operator)
