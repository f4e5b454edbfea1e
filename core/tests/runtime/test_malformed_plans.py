"""Files of plans whose checksum is right and whose objects are not: each is an error of dovetail."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from typing_extensions import TypeAliasType

import dovetail
from dovetail.errors import DovetailError, FormatError
from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import Eltwise
from dovetail.op import TensorType
from dovetail.planning.field_types import wrong_field
from dovetail.planning.plan_format import PLAN_MAGIC
from dovetail_ops_onnx.relu import Relu

HEAD = len(PLAN_MAGIC) + 12


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Plans of y = relu(x w) + x, with two outputs."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["r"])]
    nodes.append(helper.make_node("Add", ["r", "x"], ["y"], "sum"))
    x, r, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xry")
    graph = helper.make_graph(nodes, "test", [x], [r, y], [numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    path = tmp_path / "model.plans"
    dovetail.Core(config=False).compile_model(tmp_path / "model.onnx", "NUMPY").export_model(path)
    return path


def imported(whole: bytes, path: Path, change: Callable[[Any], object]) -> dovetail.InferRequest:
    """A request of the file with another header, which says that it is whole."""
    end = HEAD + int.from_bytes(whole[HEAD - 8 : HEAD], "little")
    header = json.loads(whole[HEAD:end])
    change(header)
    text = json.dumps(header).encode()
    start = PLAN_MAGIC + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    path.write_bytes(start + bytes(-len(start) % 64) + whole[-(-end // 64) * 64 :])
    return dovetail.Core(config=False).import_model(path).create_infer_request()


def replaced(old: Any, rng: np.random.Generator) -> Any:
    """Another value: one of another type, or a part of it in another order."""
    kind = rng.integers(3)
    if kind and isinstance(old, str | list):
        return old[::-1] if kind == 1 else old[1:]
    return [None, -1, 0, 5, "x", [], {"": 0}, {"": 3}, 1e300, True, 1 << 70][rng.integers(11)]


def test_random_changes_raise_only_errors_of_dovetail(stored: Path) -> None:
    whole, rng, refused = stored.read_bytes(), np.random.default_rng(3), 0

    def change(header: Any) -> None:
        entry = header[["objects", "arrays"][rng.integers(2)]]
        entry = entry[rng.integers(len(entry))]
        while isinstance(entry[at := rng.integers(len(entry))], list) and entry[at] and rng.integers(3):
            entry = entry[at]
        entry[at] = replaced(entry[at], rng)

    for _ in range(60):
        try:
            imported(whole, stored, change)
        except DovetailError:
            refused += 1
    assert refused > 30


def fields(header: Any, name: str) -> Any:
    """The number of its class, and the values, of the only object of this class."""
    number = [cls[1] for cls in header["classes"]].index(name)
    (values,) = [entry for entry in header["objects"] if entry[0] == number]
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: fields(h, "StoredModel").__setitem__(1, 3), "StoredModel.graph is 3"),
        (lambda h: fields(h, "StoredModel").__setitem__(8, []), "it has no model"),
        (lambda h: fields(h, "StoredPlan").__setitem__(3, 5), "StoredPlan.rules is 5"),
        (lambda h: fields(h, "StoredPlan").__setitem__(5, "x"), "StoredPlan.deferred is 'x'"),
        (lambda h: fields(h, "Part").__setitem__(1, "NOWHERE"), "does not fit together: KeyError: 'NOWHERE'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(stored: Path, change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        imported(stored.read_bytes(), stored, change)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (Node("a", Relu(), ("x",), ("y",)), None),
        (Node("a", Relu(), ("x",), ("y",), (Eltwise("relu", alpha=1),)), None),
        (Node("a", Relu(), ("x", 5), ("y",)), "Node.inputs is ('x', 5)"),  # type: ignore[arg-type]
        (Node("a", Relu(), ["x"], ("y",)), "Node.inputs is ['x']"),  # type: ignore[arg-type]
        (Node("a", Relu(), ("x",), ("y",), (None,)), "Node.post_ops is (None,)"),  # type: ignore[arg-type]
        (Graph((), (), (), {}, {}, "g", {"state": 1}), None),
        (Graph((), (), (), {}, {}, "g", {"state": "x"}), "Graph.states is {'state': 'x'}"),  # type: ignore[dict-item]
        (Graph((), (), (), {"w": 5}, {}, "g"), "Graph.constants is {'w': 5}"),  # type: ignore[dict-item]
        (TensorType("float32", (1,)), "TensorType.dtype is 'float32'"),  # type: ignore[arg-type]
    ],
)
def test_fields_have_the_types_of_their_annotations(made: object, wrong: str | None) -> None:
    names = {"Node": ("name", "op", "inputs", "outputs", "post_ops"), "Graph": ("nodes", "constants", "states")}
    assert wrong_field(made, names.get(type(made).__name__, ("dtype", "shape", "value"))) == wrong


def test_a_field_annotated_by_an_alias_of_python_3_12_is_checked() -> None:
    """As NumPy 2.5 has `NDArray`."""
    item = TypeVar("item", bound=np.generic)
    alias: Any = TypeAliasType("alias", np.ndarray[Any, np.dtype[item]], type_params=(item,))

    class Held:
        def __init__(self, array: Any, either: Any = None) -> None:
            self.array, self.either = array, either

    fields, array = ("array", "either"), np.zeros(2)
    Held.__annotations__ = {"array": alias[Any], "either": alias[Any] | None}
    assert wrong_field(Held(array), fields) is None
    assert wrong_field(Held(array, array), fields) is None
    assert wrong_field(Held(5), fields) == "Held.array is 5"
    assert wrong_field(Held(array, 5), fields) == "Held.either is 5"
