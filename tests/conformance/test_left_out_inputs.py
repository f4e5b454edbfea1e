"""References of operators whose last inputs are left out."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.op import FLOATS, Operator


class Shifted(Operator):
    """An operator whose reference has no default for the input that may be left out, as its contract says that it need not."""

    domain = "test"
    inputs = ("X: T", "B?: T")
    types = {"T": FLOATS}

    def reference(self, X: Any, B: Any) -> Any:
        return X if B is None else X + B


@pytest.mark.parametrize("on", ["NUMPY", "ONEDNN"])
def test_inputs_left_out_at_the_end_are_none(on: str, core: dovetail.Core) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", (3,))
    with core.compile_model(g.model([g.node(Shifted(), x), g.node(Shifted(), x, "")]), on) as compiled:
        found = compiled({"x": np.array([1, 2, 3], np.float32)}).values()
        assert [result.tolist() for result in found] == [[1, 2, 3]] * 2
        assert {node.device for node in compiled.report().nodes} == {on}
