"""The base of the pack's operators: domain, data types, and where the cases are."""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

from dovetail.op import DType, Operator

if TYPE_CHECKING:
    import numpy as np

    from dovetail.testing import Case

__all__ = ["BYTES", "FLOAT_TYPES", "MicrosoftOperator", "SearchOperator"]

BYTES = frozenset({DType.UINT8, DType.INT8})

FLOAT_TYPES = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})


class MicrosoftOperator(Operator):
    """An operator of ONNX Runtime's domain. Its cases are in `cases/<module>.py`, in a function of the operator's stem."""

    domain: ClassVar[str] = "com.microsoft"

    @classmethod
    def cases(cls, rng: "np.random.Generator") -> "Iterable[Case]":
        """The cases that the function of that name in the file of cases yields."""
        # Loaded here, because only tests need cases.
        package, _, module = cls.__module__.rpartition(".")
        found: Any = getattr(import_module(f"{package}.cases.{module}"), cls.stem)
        return cast("Iterable[Case]", found(rng))


class SearchOperator(MicrosoftOperator):
    """An operator that runs sub-graphs. It has no cases: devices do not get it, and tests compare it with onnxruntime."""

    @classmethod
    def cases(cls, rng: "np.random.Generator") -> "Iterable[Case]":
        """None."""
        return ()
