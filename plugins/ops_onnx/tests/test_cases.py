"""Every case of every standard operator against its definition, one test each.

A test checks the inferred types and content, the reference on read-only and on strided inputs, and, for the operators that are
one, views, identities, in-place results and post-ops.
"""

import functools
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.graph import TensorType
from dovetail.testing import Case, passed
from dovetail.testing.case_files import standard_cases
from dovetail.testing.post_ops import computed
from dovetail_ops_onnx import find, find_all
from dovetail_ops_onnx.regex_full_match import RegexFullMatch

_SEED = 20180906


_CASES = standard_cases(_SEED)


def _types(case: Case) -> list[TensorType | None]:
    """The input types as planning sees them: only constants have known content."""
    return [None if a is None else TensorType.of(a, known=i in case.constants) for i, a in enumerate(case.inputs)]


def _padded(case: Case, values: Sequence[Any]) -> list[Any]:
    return [*values, *[None] * (len(case.op.inputs) - len(values))]


def _inferred(case: Case) -> tuple[TensorType, ...]:
    given = case.op.infer(*_padded(case, _types(case)))
    types = given if isinstance(given, tuple) else (given,)
    return types[: len(case.expected)]


def _computed(case: Case, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...]:
    given = case.op.reference(*_padded(case, inputs))
    outputs = given if isinstance(given, tuple) else (given,)
    assert all(isinstance(a, np.ndarray) for a in outputs)
    return outputs[: len(case.expected)]


def _read_only(array: NDArray[Any] | None) -> NDArray[Any] | None:
    if array is None:
        return None
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def _strided(array: NDArray[Any] | None) -> NDArray[Any] | None:
    """The same content with every second place of memory unused, the last axis stored backwards."""
    if array is None or array.ndim == 0:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    view = wide[..., ::-2]
    view[...] = array
    return view


@pytest.mark.parametrize("case", [case for _, case in _CASES], ids=[f"{stem}-{case.name}" for stem, case in _CASES])
def test_case(case: Case) -> None:
    _check_types(case)
    _check_known_content(case)
    _check_reference(case)
    assert passed(case, _computed(case, [_strided(a) for a in case.inputs])) == "", "with strided inputs"
    if case.op.is_view or case.op.is_identity(_types(case), _inferred(case)):
        _check_same_bytes(case)
    if case.op.in_place:
        assert case.expected[0].dtype in [a.dtype for a in case.inputs if a is not None], "in_place"
    _check_post_ops(case)


def _check_types(case: Case) -> None:
    """The input types are accepted, and the output types are inferred. A dimension of None is known when the data is."""
    case.op.check(_types(case), len(case.expected))
    for inferred, expected in zip(_inferred(case), case.expected, strict=True):
        dims = (
            expected.shape
            if inferred.shape is None
            else tuple(e if d is None else d for d, e in zip(inferred.shape, expected.shape, strict=True))
        )
        assert TensorType(inferred.dtype, dims) == TensorType.of(expected)


def _check_known_content(case: Case) -> None:
    """The content that `infer` claims to know is right."""
    for inferred, expected in zip(_inferred(case), case.expected, strict=True):
        if inferred.value is not None:
            np.testing.assert_array_equal(inferred.value, expected)


def _check_reference(case: Case) -> None:
    """The reference gives the expected values and leaves its read-only inputs as they are."""
    before = [_read_only(a) for a in case.inputs]
    assert passed(case, _computed(case, before)) == ""
    assert all(a is None or np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(before, case.inputs, strict=True))


def _check_same_bytes(case: Case) -> None:
    """A view or an identity keeps the bytes of its first input."""
    assert case.inputs[0] is not None
    assert case.expected[0].dtype == case.inputs[0].dtype
    assert case.expected[0].tobytes() == case.inputs[0].tobytes()


def _check_post_ops(case: Case) -> None:
    """The post-ops that the operator gives for an input compute what the case expects."""
    types, names = _types(case), tuple("" if a is None else f"x{i}" for i, a in enumerate(case.inputs))
    operands = {f"x{i}": a.astype(np.float64) for i, a in enumerate(case.inputs) if a is not None and a.dtype.kind in "fV"}
    for chained, given in enumerate(case.inputs):
        chain = None if given is None else case.op.post_ops(types, names, chained)
        if chain is None or given is None:
            continue
        assert given.shape == case.expected[0].shape
        assert given.dtype == case.expected[0].dtype
        with np.errstate(all="ignore"):
            result = computed(chain, given.astype(np.float64), operands).astype(case.expected[0].dtype)
        assert passed(case, [result]) == ""


@functools.cache
def _covered() -> frozenset[type]:
    return frozenset(type(case.op) for _, case in _CASES)


_ELSEWHERE = "\n".join(
    (Path(__file__).parents[3] / "core" / "tests" / "runtime" / name).read_text()
    for name in ("test_control_flow.py", "test_sequences.py")
)
"""Cases hold arrays and need no runtime: sub-graphs and sequences are tested there."""


@pytest.mark.parametrize("cls", find_all(), ids=lambda cls: cls.__name__)
def test_every_operator_class_has_a_case_in_the_file_of_its_stem(cls: type[Any]) -> None:
    if cls is RegexFullMatch and sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("its cases need google-re2, which has no wheel for Python without the GIL")
    covered = cls in _covered() or re.search(rf"\b{cls.__name__}\(", _ELSEWHERE)
    assert covered
    assert find(cls.op_type, cls.since) is cls


def test_cases_stand_in_the_file_of_their_stem_under_names_of_their_own() -> None:
    assert [(stem, case.op.stem) for stem, case in _CASES if stem != case.op.stem] == []
    named = [(stem, case.name) for stem, case in _CASES]
    assert sorted(set(named)) == sorted(named)


def test_each_property_has_cases() -> None:
    """Views, identities, in-place operators, known content and post-ops are among the cases."""
    cases = [case for _, case in _CASES]
    named = [tuple("" if a is None else f"x{i}" for i, a in enumerate(case.inputs)) for case in cases]
    chained = [
        any(case.op.post_ops(_types(case), names, i) is not None for i, a in enumerate(case.inputs) if a is not None)
        for case, names in zip(cases, named, strict=True)
    ]
    assert sum(case.op.is_view for case in cases) > 40
    assert sum(case.op.is_identity(_types(case), _inferred(case)) for case in cases) > 30
    assert sum(bool(case.op.in_place) for case in cases) > 400
    assert sum(t.value is not None for case in cases for t in _inferred(case)) > 15
    assert sum(chained) > 200
