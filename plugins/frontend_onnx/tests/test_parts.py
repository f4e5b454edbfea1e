"""Large initializers are read past protobuf, once; files that would fill the memory are refused before they are parsed."""

import io
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from dovetail.errors import FormatError, UsageError
from dovetail_frontend_onnx import cost, dovetail_read_model
from dovetail_frontend_onnx.context import KEY_BYTES
from dovetail_frontend_onnx.cost import _cost, _upper_bound, check_cost
from dovetail_frontend_onnx.parts import LARGE, Parts, read_parts

FEW = LARGE // 4 - 1
SIZES = (0, 1, FEW, FEW + 1, FEW + 2, 3 * FEW)


def _weights(rng: np.random.Generator, sizes: tuple[int, ...] = SIZES) -> dict[str, NDArray[Any]]:
    return {f"w{i}": rng.standard_normal(size).astype(np.float32) for i, size in enumerate(sizes)}


def _with(build: Any, weights: dict[str, NDArray[Any]], **more: Any) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    nodes = [helper.make_node("Concat", ["x", *weights], ["y"], axis=0)]
    model: ModelProto = build(nodes, initializer=tensors, **more)
    return model


def _parts(content: bytes) -> Parts | None:
    return read_parts(io.BytesIO(content), len(content))


def _same(found: Any, weights: dict[str, NDArray[Any]]) -> None:
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert not found[name].flags.writeable


def test_initializers_of_all_sizes(read: Any, build: Any, rng: np.random.Generator, tmp_path: Any) -> None:
    weights = _weights(rng)
    path = tmp_path / "model.onnx"
    onnx.save(_with(build, weights), path)
    _same(read(path.read_bytes()).graph.constants, weights)
    _same(read(path).graph.constants, weights)


def test_large_ones_are_not_parsed(build: Any, rng: np.random.Generator) -> None:
    weights = _weights(rng)
    content = _with(build, weights).SerializeToString()
    parts = _parts(content)
    assert parts is not None
    assert [a.size for a in parts.raw_data.values()] == [4 * size for size in SIZES if 4 * size >= LARGE]
    assert len(parts.message) < len(content) - sum(array.size - 2 * KEY_BYTES for array in parts.raw_data.values())
    assert all(array.ctypes.data % 64 == 0 for array in parts.raw_data.values())
    proto = ModelProto.FromString(parts.message)
    assert [t.HasField("raw_data") for t in proto.graph.initializer] == [True] * len(SIZES)


@pytest.mark.parametrize("is_file", [True, False])
def test_large_attributes_are_not_parsed(read: Any, build: Any, rng: np.random.Generator, tmp_path: Any, is_file: bool) -> None:
    """Weights as Constant nodes, as some exporters write them; above the size from which on they are mapped, too."""
    weights = _weights(rng, (FEW, FEW + 1, 3 * FEW, 2**18 + 1))
    nodes = [helper.make_node("Constant", [], [n], name=n, value=numpy_helper.from_array(a)) for n, a in weights.items()]
    model = build([*nodes, helper.make_node("Concat", ["x", *weights], ["y"], axis=0)])
    content = model.SerializeToString()
    parts = _parts(content)
    assert parts is not None
    assert len(parts.message) < 2 * LARGE < len(content)
    assert [a.tobytes() for a in parts.raw_data.values()] == [a.tobytes() for a in weights.values() if a.nbytes >= LARGE]
    (tmp_path / "model.onnx").write_bytes(content)
    _same(read(tmp_path / "model.onnx" if is_file else content).graph.constants, weights)


@pytest.mark.parametrize("depth", [1, 3, 30])
def test_large_weights_of_sub_graphs_are_not_parsed(build: Any, rng: np.random.Generator, read: Any, depth: int) -> None:
    """Of those inside more graphs than are looked into, protobuf reads the weights."""
    weights = _weights(rng, (2 * FEW, 3))
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Concat", [*weights], ["y"], axis=0)]
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "other", [], [output])
    for _ in range(depth):
        inner = helper.make_graph(nodes, "inner", [], [output], tensors)
        nodes, tensors = [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=other)], []
    content = build(nodes).SerializeToString()
    parts = _parts(content)
    assert parts is not None
    assert len(parts.raw_data) == (depth < 20)
    graph = read(content).graph
    for _ in range(depth):
        (node,) = graph.nodes
        graph = node.op.raw["then_branch"]
    _same(graph.constants, weights)


class _Counted(io.BytesIO):
    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def test_lists_of_attributes_are_read_at_once(read: Any, build: Any) -> None:
    """Tree ensembles have a million numbers in a node."""
    lists = {"ints": [*range(-5000, 5000)], "floats": [i / 8 for i in range(5000)], "strings": [f"s{i}" for i in range(5000)]}
    content = build([helper.make_node("Trees", ["x"], ["y"], domain="d", **lists)], opsets={"": 20, "d": 1}).SerializeToString()
    file = _Counted(content)
    parts = read_parts(file, len(content))
    assert parts is not None
    assert parts.message == content
    assert file.reads < 200
    (node,) = read(content).graph.nodes
    assert node.op.raw == {name: tuple(values) for name, values in lists.items()}


def test_a_tensor_behind_a_list_is_left_to_protobuf(rng: np.random.Generator) -> None:
    tensor = numpy_helper.from_array(rng.standard_normal(2 * FEW).astype(np.float32))
    attribute = helper.make_attribute("a", [1, 2]).SerializeToString() + AttributeProto(t=tensor).SerializeToString()
    content = _field(7, _field(1, _field(5, attribute)))
    parts = _parts(content)
    assert parts is not None
    assert parts.message == content
    cut_off = _field(7, _field(1, _field(5, attribute + b"\x40")))
    assert _parts(cut_off[:-1]) is None


def test_bytes_like_a_key_are_raw_data(read: Any, build: Any, rng: np.random.Generator) -> None:
    weights = _weights(rng, (KEY_BYTES // 4, 3 * FEW))
    _same(read(_with(build, weights)).graph.constants, weights)


def test_graphs_that_protobuf_merges(build: Any, rng: np.random.Generator) -> None:
    first, second = _weights(rng, (3 * FEW, 5)), {"v": rng.standard_normal(4 * FEW).astype(np.float32)}
    content = _with(build, first).SerializeToString() + _with(build, second, outputs=()).SerializeToString()
    parts = _parts(content)
    assert parts is not None
    arrays = [array for one in (first, second) for array in one.values()]
    names = [t.name for t in ModelProto.FromString(parts.message).graph.initializer]
    assert names == [*first, *second]
    assert [a.tobytes() for a in parts.raw_data.values()] == [a.tobytes() for a in arrays if a.nbytes >= LARGE]


@pytest.mark.parametrize("order", [(3 * FEW, 2), (2, 3 * FEW), (3 * FEW, 2 * FEW)])
def test_the_last_of_two_raw_data_counts(read: Any, build: Any, rng: np.random.Generator, order: tuple[int, int]) -> None:
    arrays = [rng.standard_normal(size).astype(np.float32) for size in order]
    last = TensorProto(name="w", data_type=1, dims=[order[1]], raw_data=arrays[1].tobytes())
    doubled = TensorProto(raw_data=arrays[0].tobytes()).SerializeToString() + last.SerializeToString()
    model = build([helper.make_node("Concat", ["x", "w"], ["y"], axis=0)]).SerializeToString()
    content = model + _field(7, _field(5, doubled))
    assert ModelProto.FromString(content).graph.initializer[0].raw_data == arrays[1].tobytes()
    np.testing.assert_array_equal(read(content).graph.constants["w"], arrays[1])


def test_raw_data_and_others_are_still_refused(read: Any, build: Any) -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[LARGE], raw_data=bytes(4 * LARGE), float_data=[1.0])
    with pytest.raises(FormatError, match="has raw_data and float_data"):
        read(build([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[tensor]))
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    with pytest.raises(FormatError, match="external data and raw_data"):
        read(build([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[tensor]))
    wrong = TensorProto(name="w", data_type=1, dims=[LARGE + 1], raw_data=bytes(4 * LARGE))
    with pytest.raises(FormatError, match=f"raw_data has {4 * LARGE} bytes"):
        read(build([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[wrong]))


def test_old_operator_sets_are_converted_with_their_weights(read: Any, build: Any, rng: np.random.Generator) -> None:
    weights = {"w": rng.standard_normal(2 * FEW).astype(np.float32)}
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], broadcast=1)]
    shapes = {"x": [3, 2 * FEW], "w": [2 * FEW], "y": [3, 2 * FEW]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]
    tensors = [numpy_helper.from_array(weights["w"], "w")]
    model = build(nodes, inputs=ends[:2], outputs=ends[2:], initializer=tensors, opsets={"": 6}, ir_version=3)
    assert any(np.array_equal(array, weights["w"]) for array in read(model).graph.constants.values())


def test_what_is_cut_off_or_has_groups_is_left_to_protobuf(build: Any, rng: np.random.Generator) -> None:
    content = _with(build, _weights(rng)).SerializeToString()
    assert all(_parts(content[:length]) is None for length in (len(content) - 1, len(content) // 2, len(content) // 3))
    assert _parts(content + b"\xfb\x07\xfc\x07") is None  # a group of number 127, begun and ended
    assert _parts(content + b"\xff" * 12) is None


def _field(number: int, content: bytes) -> bytes:
    out, length = bytearray([number << 3 | 2]), len(content)
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + content


SMALL = {
    "nodes": _field(7, _field(1, b"") * 400_000),
    "attributes": _field(7, _field(1, _field(5, b"") * 1_000_000)),
    "tensors in attributes": _field(7, _field(1, _field(5, _field(10, b"") * 1_000_000))),
    "packed numbers": _field(7, _field(5, _field(7, bytes(20_000_000)))),
}


@pytest.mark.parametrize("content", SMALL.values(), ids=SMALL)
def test_small_messages_are_counted(content: bytes) -> None:
    with pytest.raises(FormatError, match="so many small messages"):
        check_cost(content, len(content))


def test_usual_content_is_not_refused(build: Any) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
    long = build(nodes, inputs=["v0"], outputs=["v20000"]).SerializeToString()
    assert _cost(long, 10**12) <= _upper_bound(long)
    check_cost(long, len(long))
    numbers = TensorProto(data_type=TensorProto.FLOAT16, dims=[10**7], int32_data=np.full(10**7, 15000, np.int32))
    typed = build([helper.make_node("Relu", ["x"], ["y"])], initializer=[numbers]).SerializeToString()
    check_cost(typed, len(typed))


def test_small_content_is_not_counted(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(cost, "_upper_bound", lambda content: counted.append(len(content)) or 0)
    check_cost(build([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString(), 100)
    assert counted == []
    check_cost(bytes(2_000_000), 100)
    assert counted == [2_000_000]


@pytest.mark.parametrize("field", [b"\x40\xff\x01", b"\x3d\x00\x00\x80\x3f", b"\x4a\x04LEAF", b"\x4a\x00"])
def test_numbers_and_strings_of_attributes_are_read_in_any_number(field: bytes) -> None:
    """As in tree ensembles; the same bytes outside of an attribute count."""
    content = _field(7, _field(1, _field(5, field * (2**25 // len(field)))))
    assert _cost(content, 10**12) < 2000
    check_cost(content, len(content))


def test_the_limit_can_be_lifted(build: Any) -> None:
    content = build([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    with pytest.raises(FormatError, match="parse_limit=BYTES"):
        dovetail_read_model(content, {"parse_limit": 100})
    assert dovetail_read_model(content, {"parse_limit": 10**6}).outputs == ("y",)
    wrong: dict[str, Any]
    for wrong in ({"parse_limit": -1}, {"parse_limit": "1 GB"}, {"limit": 1}):
        with pytest.raises(UsageError, match="limit"):
            dovetail_read_model(content, wrong)
