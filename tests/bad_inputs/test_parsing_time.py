"""Long texts and lists in models are parsed in linear time: each program ends in well under a second, and took minutes before."""

import subprocess
import sys

import pytest

LONG = 300_000

_EQUATION = f"""
import pytest
from dovetail.errors import OperatorError
from dovetail_ops_onnx.einsum import Einsum
for equation in ("i" * {LONG} + ";", "i," * {LONG} + ";", "ij->" + "k" * {LONG} + ";"):
    with pytest.raises(OperatorError, match="accepted: such as"):
        Einsum(equation=equation)
Einsum(equation="i" * {LONG})
"""

_DECIMAL = f"""
import pytest
from dovetail.errors import FormatError
from dovetail_frontend_openvino.text import decimal
for text in ("1" * {LONG} + "x", "." + "1" * {LONG} + "x", "1e" + "1" * {LONG} + "x"):
    with pytest.raises(FormatError, match="accepted: a number"):
        decimal(text, "the attribute 'alpha'")
assert decimal("0." + "1" * {LONG}, "x") == 1 / 9
assert [decimal(text, "x") for text in ("1.", ".5", "-2e3", " 1.5 ")] == [1, 0.5, -2000, 1.5]
"""

_VECTOR = f"""
import pytest
from dovetail.errors import FormatError
from dovetail_frontend_pzkm.values import text_integers
with pytest.raises(FormatError, match="accepted: numbers"):
    text_integers("perm", "1" * {LONG} + "y")
assert text_integers("perm", "0,2, 3") == (0, 2, 3)
"""

_DEFINE = f"""
import pytest
from dovetail.errors import OperatorError
from dovetail_gpu_opencl.custom_layers.attributes import attribute_text
from dovetail_gpu_opencl.custom_layers.spec import Define
define = Define(**{{f: "float" if f == "type" else "" for f in Define.__dataclass_fields__}})
with pytest.raises(OperatorError, match="has the type float"):
    attribute_text(define, "1" * {LONG} + "x")
assert [attribute_text(define, text) for text in ("1.", ".5f", "2e3")] == ["1.", ".5f", "2e3"]
"""

_AXES = f"""
import numpy as np, pytest
import dovetail
from dovetail.errors import ShapeError
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.unsqueeze import Unsqueeze
for op, numbers in ((Unsqueeze(), np.arange({LONG})), (Reshape(), np.full({LONG}, 7))):
    g = dovetail.GraphBuilder()
    model = g.model([g.node(op, g.input("x", "float32", ()), g.constant(numbers), name="grown")])
    with pytest.raises(ShapeError, match="'grown'.* has {LONG} dimensions; accepted: at most 64"):
        dovetail.Core(config=False).compile_model(model, "NUMPY")
"""


@pytest.mark.parametrize(
    "program", [_EQUATION, _DECIMAL, _VECTOR, _DEFINE, _AXES], ids=["einsum", "ir", "pzkm", "custom layer", "axes"]
)
def test_long_texts(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
