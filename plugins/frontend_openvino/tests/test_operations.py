"""Every operation of the table gives what openvino's runtime gives."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("operations", Path(__file__).with_name("operations.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)


def _operations() -> dict[str, Any]:
    import sys

    sys.modules["operations"] = _MODULE
    _SPEC.loader.exec_module(_MODULE)  # type: ignore[union-attr]  # asserted above
    return dict(_MODULE.OPERATIONS)


OPERATIONS = _operations()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, saved: Any, agree: Any) -> None:
    operation = OPERATIONS[name]
    agree(saved(operation.model()), operation.feeds, reference=operation.reference)
