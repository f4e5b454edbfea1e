"""One test case of one operator: inputs and the outputs that any device must give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.model import Model
from dovetail.op import Operator

__all__ = ["Case", "passed"]


@dataclass(frozen=True, eq=False)
class Case:
    """An operator with inputs and expected outputs.

    `expected` comes from hand, from ONNX, or from a computation in float64 that is not the operator's reference. `constants`
    are the indices of inputs that models give as constants (shapes, axes). A result `y` passes when
    `|y - expected| <= atol + rtol * |expected|` and its data type is that of `expected`; integers and bools must be equal.
    """

    name: str
    op: Operator
    inputs: tuple[NDArray[Any] | None, ...]
    expected: tuple[NDArray[Any], ...]
    rtol: float = 1e-5
    atol: float = 1e-6
    constants: tuple[int, ...] = ()

    def model(self) -> Model:
        """The case as a model of one node, with inputs `x0`, `x1`, ... and outputs `y0`, `y1`, ..."""
        g = GraphBuilder()
        names = [self._add_input(g, index) for index in range(len(self.inputs))]
        outputs = [f"y{index}" for index in range(len(self.expected))]
        g.node(self.op, *names, outputs=outputs, name=self.op.stem)
        return g.model(outputs, name=self.name)

    def feeds(self) -> dict[str, NDArray[Any]]:
        """The arrays for the inputs of `model()`."""
        return {f"x{i}": a for i, a in enumerate(self.inputs) if a is not None and i not in self.constants}

    def _add_input(self, g: GraphBuilder, index: int) -> str:
        array = self.inputs[index]
        if array is None:
            return ""
        if index in self.constants:
            return g.constant(array, name=f"x{index}")
        return g.input(f"x{index}", DType.of(array.dtype), array.shape)


def passed(case: Case, outputs: Sequence[NDArray[Any]]) -> str:
    """An empty string when `outputs` are those expected, else what differs first."""
    for index, (got, want) in enumerate(zip(outputs, case.expected, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"output {index} is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        exact = want.dtype.kind not in "fc" and want.dtype.name != "bfloat16"
        wide_got, wide_want = (got, want) if exact else (got.astype(np.float64), want.astype(np.float64))
        fits = wide_got == wide_want if exact else np.isclose(wide_got, wide_want, rtol=case.rtol, atol=case.atol, equal_nan=True)
        if not np.all(fits):
            worst = tuple(int(i) for i in np.argwhere(~np.atleast_1d(fits))[0])
            return f"output {index} at {worst}: {np.atleast_1d(got)[worst]!r}, expected {np.atleast_1d(want)[worst]!r}"
    return ""
