"""Inputs are checked by one comparison where they are as the last ones: after a good run, every other kind is still seen."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sub import Sub

X, Y = (np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32) for seed in (1, 2))


class Tagged(np.ndarray[Any, Any]):
    """A class of arrays."""


def unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view: np.ndarray[Any, Any] = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@pytest.fixture(params=["NUMPY", "ONEDNN"])
def model(request: pytest.FixtureRequest) -> Iterator[dovetail.CompiledModel]:
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ("N", 4)), g.input("y", "float32", ("N", 4))
    with dovetail.Core() as core, core.compile_model(g.model([g.node(Sub(), x, y)]), request.param) as compiled:
        np.testing.assert_array_equal(compiled({"x": X, "y": Y})[0], X - Y)
        yield compiled


SAME = {
    "in another order": {"y": Y, "x": X},
    "columns first": {"x": np.asfortranarray(X), "y": Y},
    "every other column": {"x": np.repeat(X, 2, axis=1)[:, ::2], "y": Y},
    "backwards": {"x": X[::-1].copy()[::-1], "y": Y},
    "read-only": {"x": read_only(X), "y": Y},
    "unaligned": {"x": X, "y": unaligned(Y)},
    "in the other byte order": {"x": X.astype(X.dtype.newbyteorder()), "y": Y},
    "of another class": {"x": X.view(Tagged), "y": Y},
    "a list": {"x": X.tolist(), "y": Y},
    "by position": [X, Y],
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_numbers_in_other_arrays(model: dovetail.CompiledModel, name: str) -> None:
    for given in (SAME[name], {"x": X, "y": Y}, SAME[name]):
        np.testing.assert_array_equal(model(given)[0], X - Y)


WRONG = {
    "float64": ({"x": X.astype(np.float64), "y": Y}, "input 'x' is float64"),
    "int32 of the same size": ({"x": X, "y": Y.view(np.int32)}, "input 'y' is int32"),
    "another rank": ({"x": X[0], "y": Y}, "rank 1"),
    "another fixed dimension": ({"x": X[:, :3], "y": Y[:, :3]}, "dimension 1 is 3"),
    "one missing": ({"x": X}, "'y' of .* is missing"),
    "another name": ({"x": X, "z": Y}, "no input 'z'"),
    "one too many": ({"x": X, "y": Y, "z": Y}, "no input 'z'"),
    "None": ({"x": X, "y": None}, "input 'y'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_after_good_ones(model: dovetail.CompiledModel, name: str) -> None:
    given, message = WRONG[name]
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            model(given)
        np.testing.assert_array_equal(model({"x": X, "y": Y})[0], X - Y)


IMAGE = np.zeros((2, 3, 4, 5), np.float32)
REARRANGED = {
    "no batch": (("N", 3, 4, 5), IMAGE[0], "array[numpy.newaxis]"),
    "channels last": (("N", 3, "H", "W"), IMAGE.transpose(0, 2, 3, 1), "numpy.moveaxis(array, -1, 1)"),
    "channels first": (("N", 4, 5, 3), IMAGE, "numpy.moveaxis(array, 1, -1)"),
    "something else": (("N", 7, 4, 5), IMAGE, ""),
    "another rank": (("N", 3), IMAGE, ""),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_how_to_rearrange_an_image_that_does_not_fit(name: str) -> None:
    dims, given, hint = REARRANGED[name]
    g = dovetail.GraphBuilder()
    compiled = dovetail.Core().compile_model(g.model([g.node(Relu(), g.input("x", "float32", dims))]), "NUMPY")
    with pytest.raises(InputError, match=r"has (shape|rank)") as caught:
        compiled(given)
    assert caught.value.hint.endswith(hint)
    assert bool(caught.value.hint) == bool(hint)


def test_other_shapes_take_turns(model: dovetail.CompiledModel) -> None:
    for rows in (3, 1, 0, 2, 3, 3, 1):
        np.testing.assert_array_equal(model({"x": X[:rows], "y": Y[:rows]})[0], X[:rows] - Y[:rows])


def test_results_stay_as_they_are_and_inputs_too(model: dovetail.CompiledModel) -> None:
    x = X.copy()
    first = model({"x": x, "y": Y})[0]
    again = model({"x": first, "y": Y})[0]
    last = model({"x": again, "y": again})[0]
    np.testing.assert_array_equal(first, X - Y)
    np.testing.assert_array_equal(again, first - Y)
    assert not last.any()
    np.testing.assert_array_equal(x, X)


@pytest.fixture
def words() -> Iterator[dovetail.CompiledModel]:
    g = dovetail.GraphBuilder()
    x = g.input("x", "string", (2,))
    with dovetail.Core() as core, core.compile_model(g.model([g.node(Identity(), x)]), "NUMPY") as compiled:
        assert compiled({"x": np.array(["a", "é"], object)})[0].tolist() == ["a", "é"]
        yield compiled


@pytest.mark.parametrize("given", [np.array(["b", "é"]), np.array(["b", "é"], ">U1"), ["b", "é"], np.array(["b", "é"], "T")])
def test_strings_in_other_arrays(words: dovetail.CompiledModel, given: Any) -> None:
    (found,) = words({"x": given}).values()
    assert (found.dtype, found.tolist()) == (np.dtype(object), ["b", "é"])


@pytest.mark.parametrize("given", [np.array(["b", 1], object), np.array([None, "b"], object), [b"b", b"c"], [1, 2]])
def test_elements_that_are_not_strings_are_named(words: dovetail.CompiledModel, given: Any) -> None:
    with pytest.raises(
        InputError, match=r"input 'x' has the element (1|None|b'b') \((int|NoneType|bytes)\); accepted: string\[2\]"
    ):
        words({"x": given})


def test_elements_are_looked_at_in_each_call(words: dovetail.CompiledModel) -> None:
    given = np.array(["a", "b"], object)
    assert words({"x": given})[0].tolist() == ["a", "b"]
    given[1] = 5
    with pytest.raises(InputError, match="the element 5"):
        words({"x": given})
    with pytest.raises(InputError, match="the element 5"):
        words([given])


@pytest.mark.parametrize("given", [np.array([1.5, 2]), np.array([b"b", b"c"])])
def test_the_hint_for_arrays_that_hold_no_strings_works(words: dovetail.CompiledModel, given: Any) -> None:
    with pytest.raises(InputError, match=r"accepted: string\[2\](.|\n)*convert it: \.astype\(str\)"):
        words({"x": given})
    assert words({"x": given.astype(str)})[0].tolist() == given.astype(str).tolist()


def test_strings_for_numbers(model: dovetail.CompiledModel) -> None:
    for kind in ("U", "T", "O"):
        with pytest.raises(InputError, match=r"input 'x' is .*; accepted: float32\[N, 4\]"):
            model({"x": X.astype(str).astype(kind), "y": Y})
