"""Bytes that values on the host hold: what is still alive counts, once."""

import numpy as np
import pytest

from dovetail.errors import OutOfMemory
from dovetail.graph import Node
from dovetail.planning.held import HeldBytes, check_held
from dovetail_ops_onnx.identity import Identity

NODE = Node("kept", Identity(), ("x",), ("y",))


def hundred() -> np.ndarray:
    return np.zeros(100, np.uint8)


def test_what_is_dropped_does_not_count_and_its_identity_may_return() -> None:
    held = HeldBytes(NODE, 1000)
    for _ in range(50):
        held.add([hundred()])
    kept = []
    for _ in range(10):
        kept.append(hundred())
        held.add(kept[-1:])
    with pytest.raises(OutOfMemory, match=r"'kept'.* 1,100 bytes; the limit is 1,000"):
        held.add([last := hundred()])
    del kept[0], last
    held.add([hundred()])


def test_arrays_in_lists_count_once() -> None:
    held, rows = HeldBytes(NODE, 1000), []
    for _ in range(10):
        rows = [*rows, hundred()]
        held.add([rows, rows[0], {"a": 1}, [{"a": 1}], None])
    with pytest.raises(OutOfMemory):
        held.add([[*rows, hundred()]])


def test_one_array_twice_is_within_the_limit() -> None:
    one = hundred()
    check_held(NODE, [one, [one, one]], 100)
    with pytest.raises(OutOfMemory):
        check_held(NODE, [one, [hundred()]], 100)
