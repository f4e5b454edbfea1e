"""`dovetail.device.choose`: which refusal is handed on when no kernel takes a node."""

from typing import Any

import pytest

from dovetail.device import Accepted, Kernel, Reason, Refusal, TypedNode, choose
from dovetail.graph import DType, Node, TensorType
from dovetail_ops_onnx.relu import Relu

FLOAT = TensorType(DType.FLOAT32, (2,))
NODE = TypedNode(Node("n", Relu(), ("x",), ("y",)), (FLOAT,), (FLOAT,))


class Answering(Kernel):
    def __init__(self, answer: Accepted | Refusal) -> None:
        self.name = "k"
        self._answer = answer

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        return self._answer


FIRST, LAST = Refusal(Reason.OPERATOR, "only while it rains"), Refusal(Reason.OPERATOR, "needs firmware 2")
DTYPE = Refusal(Reason.DTYPE, "float64; accepted: float32")


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([FIRST, LAST], LAST),
        ([DTYPE, LAST], DTYPE),
        ([FIRST, DTYPE], DTYPE),
        ([], Refusal(Reason.OPERATOR, "Relu")),
    ],
)
def test_the_refusal_that_is_handed_on(answers: list[Any], wanted: Refusal) -> None:
    assert choose([Answering(answer) for answer in answers], NODE) == wanted
