"""Arrays that passes derive from constants are shared between plans, and by nobody else."""

import gc

import numpy as np

from dovetail_ops_onnx.passes._derived import DerivedConstants


def test_the_same_sources_give_the_same_array() -> None:
    derived, a, b = DerivedConstants(), np.ones(3), np.ones(3)
    made = derived.get("sum", [a, b], lambda: a + b)
    assert derived.get("sum", [a, b], lambda: a - b) is made
    others = [
        derived.get("difference", [a, b], lambda: a - b),
        derived.get("sum", [b, a], lambda: b + a),
        derived.get("sum", [a], lambda: a + 0),
        derived.get("sum", [a, b.copy()], lambda: a + b),
    ]
    assert all(other is not made for other in others)


def test_what_nobody_uses_is_made_again() -> None:
    derived, a = DerivedConstants(), np.ones(3)
    derived.get("twice", [a], lambda: 2 * a)
    gc.collect()
    np.testing.assert_array_equal(derived.get("twice", [a], lambda: 3 * a), [3, 3, 3])


def test_an_array_with_the_id_of_one_that_was_freed_is_another() -> None:
    """Whatever id the second array gets: the first is gone when it is asked for."""
    derived, kept = DerivedConstants(), []
    for number in range(50):
        source = np.full(3, number, np.float64)
        kept.append(derived.get("same", [source], source.copy))
        np.testing.assert_array_equal(kept[-1], source)
        del source
