"""Inputs that elementwise, shape and data operators refuse, and unusual inputs that they accept."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError, ShapeError
from dovetail.graph import TensorType
from dovetail.op import Operator
from dovetail_ops_onnx import find

_NEWEST = 28


def _make(op_type: str, attributes: Mapping[str, Any], version: int = _NEWEST) -> Operator:
    cls = find(op_type, version)
    assert cls is not None
    return cls.from_attributes(attributes)


def _known(*values: Any) -> list[TensorType | None]:
    return [None if v is None else TensorType.of(np.asarray(v), known=True) for v in values]


def _infer(op_type: str, attributes: Mapping[str, Any], *values: Any, version: int = _NEWEST) -> Any:
    op = _make(op_type, attributes, version)
    types = _known(*values)
    op.check(types, 1)
    return op.infer(*types)


_X = np.zeros((2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("Transpose", {"perm": [0, 0, 1]}, r"'perm' is \[0, 0, 1\]; accepted: each of 0 to 2"),
        ("Transpose", {"perm": [0, 2]}, "accepted: each of 0 to 1"),
        ("Transpose", {"perm": "01"}, "'perm' is '01'"),
        ("Transpose", {"axes": [0]}, "unknown attribute 'axes'"),
        ("Concat", {}, "'axis' is missing"),
        ("Concat", {"axis": 1.5}, "'axis' is 1.5"),
        ("Cast", {"to": 99}, "'to' is 99"),
        ("Cast", {"to": 14}, "'to' is complex64"),
        ("Cast", {"to": 1, "round_mode": "sideways"}, "accepted: up, down, nearest"),
        ("Constant", {}, "accepted: exactly one of value"),
        ("Constant", {"value_int": 1, "value_float": 2.0}, "accepted: exactly one of value"),
        ("Constant", {"sparse_value": object()}, "'sparse_value' is not supported"),
        ("ConstantOfShape", {"value": np.zeros(2)}, "2 elements; accepted: 1"),
        ("DepthToSpace", {"blocksize": 0}, "'blocksize' is 0"),
        ("DepthToSpace", {"blocksize": 2, "mode": "ABC"}, "accepted: 'DCR', 'CRD'"),
        ("SpaceToDepth", {"blocksize": -1}, "'blocksize' is -1"),
        ("GatherND", {"batch_dims": -1}, "'batch_dims' is -1"),
        ("ScatterElements", {"reduction": "sum"}, "'reduction' is 'sum'; accepted: none, add, mul, max, min"),
        ("ScatterND", {"reduction": ""}, "'reduction' is ''"),
        ("Gelu", {"approximate": "Tanh"}, "accepted: 'none', 'tanh'"),
        ("Pad", {"mode": "mirror"}, "accepted: constant, reflect, edge, wrap"),
        ("Range", {"stash_type": 7}, "'stash_type' is 7"),
        ("Split", {"num_outputs": 0}, "'num_outputs' is 0"),
        ("Mod", {"fmod": 2}, "'fmod' is 2"),
    ],
)
def test_attributes(op_type: str, attributes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _make(op_type, attributes)


@pytest.mark.parametrize(
    ("op_type", "attributes", "values", "message"),
    [
        ("Add", {}, (_X, np.zeros(3, np.float32)), r"the shapes \[2, 3, 4\], \[3\] do not broadcast"),
        ("Where", {}, (np.ones(2, np.bool_), _X, _X), "do not broadcast"),
        ("PRelu", {}, (_X[0], _X), "broadcasts to"),
        ("Clip", {}, (_X, np.zeros(2, np.float32)), "'min' is .*; accepted: a scalar"),
        ("DFT", {}, (_X[..., :1], None, np.int64([1, 1])), "'axis' is .*; accepted: a scalar"),
        ("Reshape", {}, (_X, [-1, -1]), "-1 at most once"),
        ("Reshape", {}, (_X, [-2, 3]), "sizes of 0 or more"),
        ("Reshape", {}, (_X, [5, 5]), "24 elements, the shape has 25"),
        ("Reshape", {}, (_X, [5, -1]), "24 / 5"),
        ("Reshape", {}, (_X, [2, 3, 4, 0]), "a 0 copies a dimension"),
        ("Reshape", {"allowzero": 1}, (_X[:0], [0, -1, 5]), "-1 would stand for 12 / 5"),
        ("Reshape", {}, (_X, [[24]]), "accepted: one dimension"),
        ("Reshape", {}, (_X, [2**62, 2**62]), "the shape has"),
        ("Flatten", {"axis": 4}, (_X,), "axis is 4; accepted: -3 to 3"),
        ("Squeeze", {}, (_X, [1]), "has size 3; accepted: 1"),
        (
            "NonMaxSuppression",
            {},
            (np.zeros((1, 6, 4), np.float32), np.zeros((1, 2, 6), np.float32), [1], np.zeros(0, np.float32)),
            "'iou_threshold' is .*; accepted: one element",
        ),
        ("ConvInteger", {}, (np.zeros((1, 3, 5, 4), np.uint8), np.uint8(0)), "the weights W are uint8"),
        ("Squeeze", {}, (_X, [3]), "axes is 3; accepted: -3 to 2"),
        ("Unsqueeze", {}, (_X, [0, -5]), "name an axis twice"),
        ("Unsqueeze", {}, (_X, [9]), "axes is 9; accepted: -4 to 3"),
        ("Transpose", {"perm": [1, 0]}, (_X,), "rank 3"),
        ("Concat", {"axis": 3}, (_X, _X), "axis is 3; accepted: -3 to 2"),
        ("Concat", {"axis": 0}, (np.float32(1), np.float32(1)), "the input is a scalar"),
        ("Concat", {"axis": 0}, (_X, _X[:, :1]), "differ outside axis 0"),
        ("Concat", {"axis": 0}, (_X, _X[0]), "differ outside axis 0"),
        ("Concat", {"axis": 0}, (), "at least 1 input"),
        ("Max", {}, (), "at least 1 input"),
        ("Split", {"axis": 1}, (_X, [1, 1]), r"split is \[1, 1\]; accepted: sizes of 0 or more with the sum 3"),
        ("Split", {"axis": 1}, (_X, [4, -1]), "with the sum 3"),
        ("Split", {"axis": 1}, (_X,), "neither the input 'split' nor the attribute"),
        ("Split", {"axis": 1, "num_outputs": 2}, (_X, [1, 2]), "both given"),
        ("Split", {"axis": 2, "num_outputs": 9}, (_X,), "cannot be split into 9 parts"),
        ("Slice", {}, (_X, [0], [1], [0], [0]), r"steps is \[0\]"),
        ("Slice", {}, (_X, [0, 0], [1], [0]), "2 starts, 1 ends, 1 axes"),
        ("Slice", {}, (_X, [0, 0], [1, 1], [0, -3]), "name an axis twice"),
        ("Gather", {"axis": 3}, (_X, [0]), "axis is 3"),
        ("GatherElements", {}, (_X, [0]), "the same rank"),
        ("GatherElements", {"axis": 0}, (_X, np.zeros((2, 4, 4), np.int64)), "not larger outside axis 0"),
        ("GatherND", {}, (_X, np.zeros((1, 4), np.int64)), "accepted: 1 to 3"),
        ("GatherND", {"batch_dims": 1}, (_X, np.zeros((3, 1), np.int64)), "equal sizes of the first 1 axes"),
        ("ScatterElements", {}, (_X, np.zeros((2, 3, 4), np.int64), _X[:1]), "equal shapes"),
        ("ScatterElements", {}, (_X, [0], np.zeros(1, np.float32)), "the same rank"),
        (
            "ScatterElements",
            {},
            (_X, np.zeros((2, 4, 4), np.int64), np.zeros((2, 4, 4), np.float32)),
            "not larger outside axis 0",
        ),
        ("ScatterND", {}, (_X, np.zeros((1, 4), np.int64), _X), "a last axis of 1 to 3"),
        ("ScatterND", {}, (_X, np.zeros((5, 1), np.int64), _X), r"shape \[5, 3, 4\]"),
        ("Expand", {}, (_X, [2, 5]), "do not broadcast"),
        ("Expand", {}, (_X, [-1, 1]), "sizes of 0 or more"),
        ("Tile", {}, (_X, [2, 2]), "accepted: 3 numbers"),
        ("Tile", {}, (_X, [1, -1, 1]), "sizes of 0 or more"),
        ("Pad", {}, (_X, [1, 1]), "accepted: 6 numbers"),
        ("Pad", {}, (_X, [0, 0, 0, -2, -4, 0]), "cut more than the 3 elements of axis 1"),
        ("Pad", {"mode": "edge"}, (_X[:0], [1, 0, 0, 0, 0, 0]), "its size is 0"),
        ("Range", {}, (0, 5, 0), "a delta other than 0"),
        ("Range", {}, (0.0, np.inf, 1.0), "finite numbers"),
        ("Range", {}, (0.0, 1e300, 1e-300), "too many elements"),
        ("ConstantOfShape", {}, ([2, -1],), "sizes of 0 or more"),
        ("OneHot", {}, ([0], -1, [0, 1]), "depth is -1"),
        ("OneHot", {}, ([0], 3, [0, 1, 2]), "two elements"),
        ("OneHot", {"axis": 2}, ([0], 3, [0, 1]), "axis is 2; accepted: -2 to 1"),
        ("Trilu", {}, (_X[0, 0],), "rank 2 or higher"),
        ("CumSum", {}, (_X, 3), "axis is 3"),
        ("DepthToSpace", {"blocksize": 2}, (_X[None],), "C divisible by 4"),
        ("SpaceToDepth", {"blocksize": 2}, (_X[None],), "H and W divisible by 2"),
        ("Dropout", {}, (_X, np.float32(0.5), np.True_), "depends on 'training_mode'"),
    ],
)
def test_shapes(op_type: str, attributes: Mapping[str, Any], values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _infer(op_type, attributes, *values)


@pytest.mark.parametrize(
    ("op_type", "values", "message"),
    [
        ("Add", (_X, _X.astype(np.float64)), "both must have the same type"),
        ("Add", (_X > 0, _X > 0), "'A' is bool; accepted: bfloat16"),
        ("Add", (_X,), "'B' is required; got 1 inputs"),
        ("Add", (_X, _X, _X), "at most 2 inputs"),
        ("Add", (_X, None), "'B' is required and was left out"),
        ("Neg", (np.zeros(1, np.uint8),), "'X' is uint8"),
        ("And", (_X, _X), "accepted: bool"),
        ("Reshape", (_X, np.zeros(1, np.int32)), "'shape' is int32; accepted: int64"),
    ],
)
def test_data_types_and_input_counts(op_type: str, values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _infer(op_type, {}, *values)


@pytest.mark.parametrize(
    ("op_type", "attributes", "values", "unknown"),
    [
        ("Reshape", {}, (_X, [24]), 1),
        ("Squeeze", {}, (_X, [0]), 1),
        ("Unsqueeze", {}, (_X, [0]), 1),
        ("Split", {}, (_X, [1, 1]), 1),
        ("Slice", {}, (_X, [0], [1]), 2),
        ("Expand", {}, (_X, [2, 3, 4]), 1),
        ("Tile", {}, (_X, [1, 1, 1]), 1),
        ("Pad", {}, (_X, [0] * 6), 1),
        ("Range", {}, (0, 3, 1), 1),
        ("ConstantOfShape", {}, ([2],), 0),
        ("OneHot", {}, ([0], 3, [0, 1]), 1),
    ],
)
def test_a_shape_that_depends_on_data_says_so(op_type: str, attributes: Mapping[str, Any], values: Any, unknown: int) -> None:
    types = _known(*values)
    given = types[unknown]
    assert given is not None
    types[unknown] = given.with_shape(given.shape)
    with pytest.raises(ShapeError, match="depends on data"):
        _make(op_type, attributes).infer(*types)


@pytest.mark.parametrize(
    ("op_type", "attributes", "values", "size"),
    [
        ("Expand", {}, (np.zeros(1, np.float32), [2**40, 2**40]), 2**80),
        ("Tile", {}, (np.zeros(3, np.float32), [2**62]), 3 * 2**62),
        ("Pad", {}, (np.zeros(1, np.float32), [2**62, 2**62]), 2**63 + 1),
        ("ConstantOfShape", {}, ([10**6, 10**6],), 10**12),
        ("Range", {}, (-(2**62), 2**62, 1), 2**63),
        ("Range", {}, (0.0, 1e12, 1.0), 10**12),
        ("OneHot", {}, ([0, 1], 10**12, [0, 1]), 2 * 10**12),
    ],
)
def test_the_type_of_a_gigantic_result_costs_nothing(op_type: str, attributes: Any, values: Any, size: int) -> None:
    assert _infer(op_type, attributes, *values).size == size


@pytest.mark.parametrize(
    ("op_type", "attributes", "indices"),
    [
        ("Gather", {"axis": 1}, [0, 3]),
        ("Gather", {"axis": 1}, [0, -4]),
        ("GatherElements", {"axis": 1}, [[[3]]]),
        ("GatherElements", {"axis": 1}, [[[-4]]]),
        ("GatherND", {}, [[0, 3]]),
        ("GatherND", {}, [[0, -4]]),
        ("ScatterElements", {"axis": 1}, [[[3]]]),
        ("ScatterElements", {"axis": 1, "reduction": "add"}, [[[-4]]]),
        ("ScatterND", {}, [[0, 3]]),
        ("ScatterND", {"reduction": "max"}, [[0, -4]]),
    ],
)
def test_an_index_out_of_range_is_named_with_its_bound(op_type: str, attributes: Mapping[str, Any], indices: Any) -> None:
    array = np.array(indices)
    wrong = array[(array < -3) | (array > 2)].item()
    with pytest.raises(OperatorError, match=rf"index {wrong} .* outside axis 1 of size 3"):
        _make(op_type, attributes).reference(_X, array, *([_X] if op_type.startswith("Scatter") else []))


def test_only_numbers_are_reduced() -> None:
    flags = np.zeros(2, np.bool_)
    for op_type, indices in (("ScatterElements", np.array([0])), ("ScatterND", np.array([[0]]))):
        with pytest.raises(OperatorError, match="reduction 'add' of bool; accepted: integers and floating-point types"):
            _infer(op_type, {"reduction": "add"}, flags, indices, flags[:1])


def test_an_index_into_nothing_is_refused() -> None:
    with pytest.raises(OperatorError, match="an axis of size 0 takes no index"):
        _make("Gather", {}).reference(_X[:0], np.array([0]))


@pytest.mark.parametrize(
    ("op_type", "attributes", "values", "message"),
    [
        ("CumSum", {}, (_X, 3), "axis is 3"),
        ("Reshape", {}, (_X, [5]), "24 elements"),
        ("Range", {}, (0, 1, 0), "a delta other than 0"),
        ("Tile", {}, (_X, [1, -1, 1]), "sizes of 0 or more"),
        ("OneHot", {}, ([0], -1, [0, 1]), "depth is -1"),
        ("Dropout", {}, (_X, np.float32(1), np.True_), "'ratio' is 1.0; accepted: 0 up to 1"),
    ],
)
def test_references_check_content_that_planning_could_not_see(op_type: str, attributes: Any, values: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _make(op_type, attributes).reference(*(np.asarray(v) for v in values))


def test_a_string_that_is_no_number_is_refused() -> None:
    with pytest.raises(OperatorError, match="'pi' cannot become float32"):
        _make("Cast", {"to": 1}).reference(np.array(["3", "pi"], object))
    with pytest.raises(OperatorError, match="'300' cannot become int8; accepted: numbers from -128 to 127"):
        _make("Cast", {"to": 3}).reference(np.array(["300"], object))
    with pytest.raises(OperatorError, match="'9' cannot become int4; accepted: numbers from -8 to 7"):
        _make("Cast", {"to": 22}).reference(np.array(["7", "9"], object))


def test_mod_of_floats_needs_fmod_before_version_28() -> None:
    with pytest.raises(OperatorError, match="'fmod' is 0 for float32 inputs; accepted: 1"):
        _infer("Mod", {}, _X, _X, version=13)
    assert _infer("Mod", {"fmod": 1}, _X, _X, version=13) == TensorType.of(_X)


def _post_ops(op_type: str, types: list[TensorType], names: list[str], chained: int = 0) -> Any:
    return _make(op_type, {}).post_ops(types, names, chained)


def test_post_ops_are_for_floats_only() -> None:
    ints: NDArray[Any] = np.zeros((2, 3), np.int32)
    assert _post_ops("Abs", [TensorType.of(ints)], ["x"]) is None
    assert _post_ops("Add", [TensorType.of(ints)] * 2, ["x", "y"]) is None


def test_post_ops_need_another_operand_and_the_shape_of_the_result() -> None:
    whole, row = TensorType.of(_X), TensorType.of(_X[:1])
    assert _post_ops("Add", [whole, whole], ["x", "x"]) is None
    assert _post_ops("Mul", [whole, whole], ["x", "x"])[0].algorithm == "square"
    assert _post_ops("Mul", [whole, row], ["x", "y"], 1) is None
    assert _post_ops("Max", [whole, row], ["x", "y"], 1) is None
    assert _post_ops("PRelu", [whole, row], ["x", "s"], 1) is None
    assert _post_ops("Mul", [whole, row], ["x", "y"]) is not None


def test_post_ops_mirror_the_side_that_is_chained() -> None:
    types = [TensorType.of(_X)] * 2
    for op_type, forwards, backwards in (("Sub", "sub", "rsub"), ("Div", "div", "rdiv")):
        assert _post_ops(op_type, types, ["a", "b"], 0)[0].algorithm == forwards
        assert _post_ops(op_type, types, ["a", "b"], 1)[0].algorithm == backwards


def test_post_ops_with_limits_or_exponents_that_are_not_constant_do_not_exist() -> None:
    scalar = TensorType.of(np.array(1, np.float32))
    assert _post_ops("Clip", [TensorType.of(_X), scalar], ["x", "low"]) is None
    assert _post_ops("Pow", [TensorType.of(_X), scalar], ["x", "y"]) is None
    known = TensorType.of(np.array(2, np.float32), known=True)
    assert _post_ops("Pow", [TensorType.of(_X), known], ["x", "y"])[0].algorithm == "square"
    assert _post_ops("Pow", [known, TensorType.of(_X)], ["y", "x"], 1) is None
