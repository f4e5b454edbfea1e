"""`dovetail.device.choose`: which refusal is handed on when no kernel takes a node. `KernelTable`: which modules have kernels."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.device import Accepted, Kernel, KernelTable, Reason, Refusal, TypedNode, choose
from dovetail.errors import PluginError
from dovetail.graph import DType, Node, TensorType
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh

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


@pytest.mark.parametrize("defined_in", ["dovetail_ops_onnx", "elsewhere"])
def test_only_a_module_that_is_missing_itself_has_no_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defined_in: str
) -> None:
    package = f"kernels_for_{defined_in}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "relu.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    table: KernelTable[Kernel] = KernelTable(package, [defined_in])
    assert table[Tanh()] == ()
    if defined_in == "elsewhere":  # the kernels for operators of other packages are in a folder of their own
        assert table[Relu()] == ()
        return
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        table[Relu()]


def test_a_missing_package_of_kernels_is_an_error() -> None:
    table: KernelTable[Kernel] = KernelTable("no_kernels_of_this_name", ["elsewhere"])
    with pytest.raises(ModuleNotFoundError, match="no_kernels_of_this_name"):
        table[Relu()]


def test_an_only_kernel_may_be_an_entry_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels_in_table").mkdir()
    (tmp_path / "kernels_in_table" / "_table.py").write_text(
        "from later_module import LATER\nKERNELS = {'relu': LATER, 'tanh': 3}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "later_module", SimpleNamespace(LATER=(later := Answering(LAST))))
    table: KernelTable[Kernel] = KernelTable("kernels_in_table", ["dovetail_ops_onnx"])
    assert table[Relu()] == (later,)
    assert table[Neg()] == ()
    with pytest.raises(PluginError, match=r"kernels_in_table\.tanh: KERNELS has 3"):
        table[Tanh()]
