"""Every case of every standard operator on every device: what a device claims must be right, what it refuses needs a reason."""

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail.testing.cases
from dovetail.device import Reason, Refusal
from dovetail.errors import UnsupportedNode
from dovetail.runtime import REFERENCE_DEVICE
from dovetail.testing import Case, passed

STEMS = sorted(m.name for m in pkgutil.iter_modules(dovetail.testing.cases.__path__) if not m.name.startswith("_"))


def cases(stem: str) -> Iterator[Case]:
    yield from importlib.import_module(f"dovetail.testing.cases.{stem}").cases(np.random.default_rng(7))


def awkward(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, read-only, with a negative stride on the first axis where there is one."""
    copy = array[::-1].copy()[::-1] if array.ndim else array.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("stem", STEMS)
def test_cases(core: dovetail.Core, device: str, stem: str) -> None:
    ran, refused = 0, 0
    for case in cases(stem):
        model = case.model()
        try:
            compiled = core.compile_model(model, device, {"FALLBACK": False})
        except UnsupportedNode as error:
            message = str(error)
            answers = core.query_model(model, device).values()
            reasons = [a for a in answers if isinstance(a, Refusal)]
            assert reasons, f"{case.name}: {message}"
            assert all(isinstance(r.reason, Reason) for r in reasons)
            refused += 1
            continue
        with compiled:
            feeds = {name: awkward(array) for name, array in case.feeds().items()}
            for run in (1, 2):
                results = compiled(feeds)
                wrong = passed(case, [results[i] for i in range(len(case.expected))])
                assert not wrong, f"{case.name}, run {run}: {wrong}"
        ran += 1
    assert ran + refused > 0, f"testing/cases/{stem}.py yields no case"
    if device == REFERENCE_DEVICE:
        assert refused == 0


def test_warnings_are_errors_here() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("the suite must not run with warnings ignored", UserWarning, stacklevel=1)
