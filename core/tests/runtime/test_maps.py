"""Maps and sequences of maps: dictionaries in and out, nodes on them on the host."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.graph import DType, Graph, GraphBuilder, Model, TensorType
from dovetail.graph.types import MapType, SequenceType
from dovetail.op import FLOATS, Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.sequence_at import SequenceAt

CORE = dovetail.Core()


class Counts(Operator):
    """How often each number is there, and the same for each row."""

    domain = "test"
    inputs = ("X: T",)
    outputs = ("whole", "rows")
    types = {"T": frozenset({DType.INT64})}

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        return MapType(DType.FLOAT32, None), SequenceType(DType.FLOAT32, None, keys=DType.INT64)

    def reference(self, X: Any) -> Any:
        return _counted(X), [_counted(row) for row in X]


class Looked(Operator):
    """The values of a map for some keys, 0 where it has none."""

    domain = "test"
    inputs = ("M",)
    types = {"T": FLOATS}
    keys: tuple[int, ...]

    def infer(self, M: TensorType) -> TensorType:
        assert isinstance(M, MapType)
        return TensorType(M.dtype, (len(self.keys),))

    def reference(self, M: dict[int, float]) -> Any:
        return np.array([M.get(key, 0) for key in self.keys], np.float32)


def _counted(array: Any) -> dict[int, float]:
    keys, counts = np.unique(array, return_counts=True)
    return dict(zip(keys.tolist(), counts.astype(float).tolist(), strict=True))


def counts_model() -> Model:
    g = GraphBuilder()
    g.node(Counts(), g.input("x", "int64", ["N", 3]), outputs=["whole", "rows"])
    return g.model(["whole", "rows"])


def looked_model(declared: TensorType) -> Model:
    """got = the values of m for 3, 1 and 7; plus = those and one; m itself goes through."""
    g = GraphBuilder(outer={"m": declared})
    looked = g.node(Looked(keys=(3, 1, 7)), "m", outputs=["got"])
    g.node(Add(), looked, g.constant([1.0], "float32"), outputs=["plus"])
    return Model(g.graph(["got", "plus", "m"]).replace(inputs=("m",)))


X = np.array([[1, 1, 2], [5, 1, 5]])


def test_outputs_are_dictionaries() -> None:
    with CORE.compile_model(counts_model(), "NUMPY") as compiled:
        found = compiled({"x": X})
        assert found["whole"] == {1: 3.0, 2: 1.0, 5: 2.0}
        assert found["rows"] == [{1: 2.0, 2: 1.0}, {1: 1.0, 5: 2.0}]
        assert repr(found) == "Results(whole: dict, rows: list)"
        assert compiled({"x": X[:0]})["rows"] == []


def test_nodes_take_maps_and_what_follows_runs_on_the_device() -> None:
    with CORE.compile_model(looked_model(MapType(DType.FLOAT32, None)), "ONEDNN") as compiled:
        for given in ({1: 2.5, 3: -1}, {np.int64(7): np.float32(0.5)}):
            found = compiled({"m": given})
            want = np.array([given.get(k, 0) for k in (3, 1, 7)], np.float32)
            np.testing.assert_array_equal(found["got"], want)
            np.testing.assert_array_equal(found["plus"], want + 1)
            assert found["m"] == given
            assert {type(key) for key in found["m"]} == {int}
        places = {node.op: node.device for node in compiled.report().nodes}
        assert places == {"test::Looked": "NUMPY", "Add": "ONEDNN"}


def test_one_map_of_a_sequence() -> None:
    g = GraphBuilder()
    _, rows = g.node(Counts(), g.input("x", "int64", [2, 3]))
    g.node(Looked(keys=(5, 1)), g.node(SequenceAt(), rows, g.constant(-1, "int64")), outputs=["y"])
    with CORE.compile_model(g.model(["y"]), "NUMPY") as compiled:
        np.testing.assert_array_equal(compiled(X)["y"], np.array([2, 1], np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], r"input 'm' is list; accepted: a dictionary, map\(int64, float32\)"),
        ({"a": 1.0}, r"input 'm' has the key 'a' \(str\); accepted: map\(int64, float32\)"),
        ({True: 1.0}, r"input 'm' has the key True \(bool\)"),
        ({1: "b"}, r"input 'm' has the value 'b' \(str\)"),
        ({1: [1.0]}, r"input 'm' has the value \[1.0\] \(list\)"),
        ({1: 1j}, r"input 'm' has the value 1j \(complex\)"),
    ],
    ids=str,
)
def test_values_that_are_no_such_map(given: Any, message: str) -> None:
    with (
        CORE.compile_model(looked_model(MapType(DType.FLOAT32, None)), "NUMPY") as compiled,
        pytest.raises(InputError, match=message),
    ):
        compiled({"m": given})


def test_maps_of_strings_and_sequences_of_maps() -> None:
    def through(declared: TensorType, given: Any) -> Any:
        graph = Graph((), ("m",), ("m",), {}, {"m": declared})
        with CORE.compile_model(Model(graph), "NUMPY") as compiled:
            return compiled({"m": given})["m"]

    texts = MapType(DType.STRING, None, keys=DType.STRING)
    assert through(texts, {"a": "b", "c": ""}) == {"a": "b", "c": ""}
    rows = SequenceType(DType.INT64, None, keys=DType.STRING)
    assert through(rows, [{"a": np.int8(3)}, {}]) == [{"a": 3}, {}]
    assert str(rows) == "seq(map(string, int64))"
    with pytest.raises(InputError, match="accepted: a list of dictionaries, seq"):
        through(rows, {"a": 3})
    with pytest.raises(InputError, match=r"'m' has the value 0.5 \(float\)"):
        through(rows, [{"a": 0.5}])


def test_an_asynchronous_run_keeps_the_map_that_it_was_given() -> None:
    with CORE.compile_model(looked_model(MapType(DType.FLOAT32, None)), "NUMPY") as compiled:
        given = {1: 1.0}
        request = compiled.create_infer_request()
        request.start_async({"m": given})
        given[1] = 9.0
        request.wait()
        np.testing.assert_array_equal(request.results["got"], np.array([0, 1, 0], np.float32))
