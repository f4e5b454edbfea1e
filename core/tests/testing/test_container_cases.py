"""Cases of operators on sequences, maps and optionals: typed, run by the kit like those on arrays, and compared."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import UsageError
from dovetail.op import FLOATS, DType, MapType, Operator, OptionalType, SequenceType, TensorType
from dovetail.testing import Case, Outcome, passed
from dovetail.testing.packs import OpPackChecks, reference_checks
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.optional_has_element import OptionalHasElement
from dovetail_ops_onnx.sequence_at import SequenceAt
from dovetail_ops_onnx.sequence_insert import SequenceInsert

ONE, TWO = np.float32([1]), np.float32([[2, 3]])
FLOAT_SEQUENCE = SequenceType(DType.FLOAT32, None)
FLOAT_OPTIONAL = OptionalType(DType.FLOAT32, None)


class Scaled(Operator):
    """Each map of a sequence with its values scaled, and the first of them (an optional)."""

    domain = "com.acme"
    inputs = ("S: T",)
    outputs = ("Y: T", "first: T")
    types = {"T": FLOATS}

    def infer(self, S: TensorType) -> tuple[TensorType, TensorType]:
        return S, OptionalType(S.dtype, None)

    def reference(self, S: list[dict[str, Any]]) -> Any:
        scaled = [{key: value * 2 for key, value in item.items()} for item in S]
        return scaled, np.float32([*scaled[0].values()]) if scaled else None

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("two", cls(), ([{"a": 1.5, "b": -2.0}, {}],), ([{"b": -4.0, "a": 3.0}, {}], np.float32([3, -4])))
        empty = SequenceType(DType.FLOAT32, None, keys=DType.STRING)
        yield Case("none", cls(), ([],), ([], None), types={0: empty})


def results(cls: type[Operator]) -> dict[str, Any]:
    """Name -> result, of all checks of a pack with this operator."""

    @dovetail.hookimpl
    def dovetail_register_ops(registry: Any, domain: str) -> None:
        registry.add(cls)

    def core() -> dovetail.Core:
        made = dovetail.Core()
        plugin = SimpleNamespace(dovetail_api="1.0", dovetail_register_ops=dovetail_register_ops)
        made.plugins.register(plugin, name="acme", kind="ops", key="com.acme")
        return made

    kit = OpPackChecks("com.acme", core)
    found = {check.name: check.result() for check in kit.checks}
    kit.close()
    return found


def variant(reference: Callable[..., Any], **body: Any) -> type[Operator]:
    """`Scaled` with another reference."""
    return type("Scaled", (Scaled,), {"__doc__": Scaled.__doc__, "__module__": __name__, "reference": reference, **body})


def failure(case: Case) -> str:
    """The mistakes that the check of a single case finds."""
    (check,) = reference_checks(type(case.op), [case])
    result = check.result()
    assert result.outcome is Outcome.FAILED
    return result.detail


def test_the_kit_runs_them_on_every_device() -> None:
    found = results(Scaled)
    assert {name: r.detail for name, r in found.items() if r.outcome is Outcome.FAILED} == {}
    assert found["scaled-two"].outcome is found["scaled-two-NUMPY"].outcome is Outcome.PASSED
    assert found["scaled-none-NUMPY"].outcome is Outcome.PASSED
    assert {r.dtype for name, r in found.items() if name.startswith("scaled-two")} == {"float32"}


def test_a_wrong_reference_fails_on_devices_too() -> None:
    found = results(variant(lambda self, S: (S, np.float32([3, -4]) if S else None)))
    assert found["scaled-two"].detail == "reference(): output 0, element 0, at 'b': -2.0, expected -4.0"
    assert "output 0, element 0, at 'b': np.float32(-2.0), expected -4.0" in found["scaled-two-NUMPY"].detail


def test_a_reference_that_writes_its_map() -> None:
    def reference(self: Any, S: list[dict[str, Any]]) -> Any:
        result = Scaled.reference(self, S)
        S.append({})
        return result

    assert results(variant(reference))["scaled-two"].detail == "an input was written"


@pytest.mark.parametrize(
    "case",
    [
        Case("at", SequenceAt(), ([ONE, TWO], np.int64(-1)), (TWO,)),
        Case("insert", SequenceInsert(), ([ONE], TWO, np.array(0)), ([TWO, ONE],), constants=(2,)),
        Case("into_empty", SequenceInsert(), ([], ONE), ([ONE],), types={0: FLOAT_SEQUENCE}),
        Case("absent", OptionalHasElement(), (None,), (np.array(False),), types={0: FLOAT_OPTIONAL}),
        Case("left_out", OptionalHasElement(), (None,), (np.array(False),)),
        Case("there", OptionalHasElement(), (ONE,), (np.array(True),), types={0: FLOAT_OPTIONAL}),
    ],
    ids=lambda case: case.name,
)
def test_operators_of_the_standard(case: Case) -> None:
    (check,) = reference_checks(type(case.op), [case])
    assert check.result().detail == ""
    with dovetail.Core().compile_model(case.model(), "NUMPY") as compiled:
        found = compiled(case.feeds())
        assert passed(case, [found[0]]) == ""


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ([ONE], "infer() gives seq(map(string, float32)) for output 0, expected seq(float32[...])"),
        ([{"a": np.float64(2)}], "expected seq(map(string, float64))"),
        ([{1: 2.0}], "expected seq(map(int64, float32))"),
        (ONE, "expected float32[1]"),
        (None, "expected absent"),
    ],
    ids=str,
)
def test_inference_that_disagrees(expected: Any, message: str) -> None:
    assert message in failure(Case("x", Scaled(), ([{"a": 1.0}],), (expected,)))


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        ([ONE], [ONE, TWO], "output 0 is a sequence of 1, expected 2"),
        ([ONE, ONE], [ONE, TWO], "output 0, element 1, is float32[1], expected float32[1, 2]"),
        ([ONE], [ONE + 1], "output 0, element 0, at (0,): np.float32(1.0), expected np.float32(2.0)"),
        (ONE, [ONE], "output 0 is an array, expected a sequence"),
        ([ONE], ONE, "output 0 is a sequence, expected an array"),
        ({"a": 1.0}, {"b": 1.0}, "output 0 has the keys ['a'], expected ['b']"),
        ({"a": 1.0}, {"a": 1}, "output 0 is map(string, float32), expected map(string, int64)"),
        ({"a": "x"}, {"a": "y"}, "output 0 at 'a': 'x', expected 'y'"),
        ({"a": 1.1}, {"a": 1.0}, "output 0 at 'a': 1.1, expected 1.0"),
        (None, ONE, "output 0 is absent, expected an array"),
        (ONE, None, "output 0 is an array, expected absent"),
        ({1: 1.0 + 1e-7, 2: 3.0}, {2: np.float32(3), 1: np.float32(1)}, ""),
        ([{"a": 1}, {}], [{"a": 1}, {}], ""),
        (None, None, ""),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_passed(got: Any, want: Any, message: str) -> None:
    assert passed(Case("x", Neg(), (), (want,)), [got]) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"case 'x': input 1 is \[\], which does not determine its type"),
        ({}, r"input 1 is \{\}, which does not determine"),
        (1.5, r"input 1 is 1.5, which does not determine"),
    ],
)
def test_values_that_tell_no_type(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Case("x", Neg(), (ONE, value), (ONE,)).model()
    assert "types={1: ...}" in caught.value.hint


def test_a_sequence_is_no_constant() -> None:
    with pytest.raises(UsageError, match="input 0 is a sequence; accepted as a constant: an array"):
        Case("x", SequenceAt(), ([ONE], np.array(0)), (ONE,), constants=(0,)).model()


def test_an_input_that_is_left_out_may_stand_among_the_constants() -> None:
    case = Case("x", SequenceInsert(), ([ONE], TWO, None), ([ONE, TWO],), constants=(2,))
    assert case.model().graph.nodes[0].inputs == ("x0", "x1", "")


def test_plain_numbers_are_int64_and_float32() -> None:
    values = ({1: 2}, {"a": 2.0}, {1: np.float64(2)}, [{1: "a"}])
    types = Case("x", Neg(), values, (ONE,)).input_types()
    assert types == (
        MapType(DType.INT64, None, keys=DType.INT64),
        MapType(DType.FLOAT32, None, keys=DType.STRING),
        MapType(DType.FLOAT64, None, keys=DType.INT64),
        SequenceType(DType.STRING, None, keys=DType.INT64),
    )
