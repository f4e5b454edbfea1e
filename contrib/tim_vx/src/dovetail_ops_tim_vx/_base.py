"""The base of the pack's operators: the domain, and where their test cases are."""

import math
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from dovetail.op import Operator, TensorType

if TYPE_CHECKING:
    import numpy as np

    from dovetail.testing import Case

__all__ = ["RecurrentOperator", "TimVxOperator"]


class TimVxOperator(Operator):
    """An operator of domain tim.vx; `cases/<stem>.py` holds its test cases."""

    domain = "tim.vx"

    @classmethod
    def cases(cls, rng: "np.random.Generator") -> "Iterable[Case]":
        """The cases that the function of that name in the file of cases yields."""
        # Loaded here, because only tests need cases.
        module = import_module(f"dovetail_ops_tim_vx.cases.{cls.stem}")
        return cast("Iterable[Case]", module.cases(rng))


class RecurrentOperator(TimVxOperator):
    """An operator whose work is the products of X, and of what follows from it, with the inputs called W, R and A."""

    def flops(self, inputs: "Sequence[TensorType | None]", outputs: "Sequence[TensorType]") -> int:
        """A product and a sum for each element of a weight matrix, in every time step of every sample."""
        x = inputs[0]
        assert x is not None
        names = [port.name.removeprefix("fw_").removeprefix("bw_") for port in self.inputs]
        # Trailing inputs may be left out.
        weights = [t.size for name, t in zip(names, inputs, strict=False) if t is not None and name[0] in "WRA"]
        return 2 * math.prod(x.dims[:-1]) * sum(weights)
