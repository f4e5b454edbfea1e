"""Types are inferred, or refused with an error of dovetail, for inputs whose dimensions no memory holds."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError
from dovetail.graph import TensorType
from dovetail.testing import Case
from dovetail.testing.case_files import standard_cases

ENORMOUS = (2**40, 2**62)
PER_OPERATOR = 3
"""Cases of each operator."""


def _cases() -> Iterator[tuple[str, Case]]:
    seen: dict[str, int] = {}
    for stem, case in standard_cases(7):  # those of the kits of devices
        tensors = all(isinstance(value, np.ndarray | np.generic | None) for value in case.inputs)
        if tensors and seen.setdefault(stem, 0) < PER_OPERATOR and next(_variants(case), None) is not None:
            seen[stem] += 1
            yield stem, case


def _variants(case: Case) -> Iterator[list[TensorType | None]]:
    """The input types with one dimension enormous, and with all equal ones."""
    types = list(case.input_types())
    for index, given in enumerate(types):
        if given is None or index in case.constants:
            continue
        for axis, size in enumerate(given.dims):
            for big in ENORMOUS:
                yield [_resized(t, {axis: big}) if i == index else t for i, t in enumerate(types)]
                yield [t if i in case.constants else _everywhere(t, size, big) for i, t in enumerate(types)]


def _resized(t: TensorType | None, sizes: dict[int, int]) -> TensorType | None:
    return None if t is None else TensorType(t.dtype, tuple(sizes.get(i, d) for i, d in enumerate(t.dims)))


def _everywhere(t: TensorType | None, size: int, big: int) -> TensorType | None:
    return None if t is None else _resized(t, {i: big for i, d in enumerate(t.dims) if d == size})


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{stem}-{case.name}") for stem, case in _cases()])
def test_inference_of_enormous_dimensions(case: Case) -> None:
    outcomes = {_outcome(case, types) for types in _variants(case)}
    assert outcomes <= {"inferred", "refused"}


def _outcome(case: Case, types: list[Any]) -> str:
    """One of "inferred", "refused", or the name of an exception that is not dovetail's."""
    try:
        case.op.check(types, len(case.expected))
        case.op.infer(*types, *[None] * (len(case.op.inputs) - len(types)))
    except DovetailError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "inferred"
