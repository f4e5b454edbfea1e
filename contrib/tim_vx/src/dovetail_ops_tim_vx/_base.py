"""The base of the pack's operators: the domain, and where their test cases are."""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from dovetail.op import Operator

if TYPE_CHECKING:
    import numpy as np

    from dovetail.testing import Case

__all__ = ["TimVxOperator"]


class TimVxOperator(Operator):
    """An operator of domain tim.vx; `cases/<stem>.py` holds its test cases."""

    domain = "tim.vx"

    @classmethod
    def cases(cls, rng: "np.random.Generator") -> "Iterable[Case]":
        """What the function of that name in the file of cases yields."""
        # Loaded here, because only tests need cases.
        module = import_module(f"dovetail_ops_tim_vx.cases.{cls.stem}")
        return cast("Iterable[Case]", module.cases(rng))
