"""Values written as bytes are read as what they were; other objects are refused on both sides."""

import dataclasses
from collections.abc import Collection
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.graph import Node
from dovetail.graph.dtype import DType
from dovetail.graph.mapped_file import SMALLEST_REGION
from dovetail.graph.post_ops import Binary, Eltwise
from dovetail.graph.types import TensorType
from dovetail.internal.copy import Copy
from dovetail.planning.plan_format import Damaged, header_of, packed, unpacked
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.elu import Elu

PACKAGES = ("dovetail",)


def written(content: Any, packages: Collection[str] = PACKAGES) -> np.ndarray:
    return np.frombuffer(b"".join(packed({"version": "1"}, content, packages)), np.uint8)


def read(file: np.ndarray, packages: Collection[str] = PACKAGES) -> Any:
    header, start = header_of(file)
    return unpacked(header, [lambda offset, size: file[offset : offset + size]], start, packages)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.0,
        float("inf"),
        "a\n\u00e9\u65e5",
        (),
        (1, (2, None), "x"),
        [1, [2]],
        frozenset({1, 2}),
        {"a": 1, 2: (3,), (4, 5): None},
        DType.FLOAT16,
        Eltwise("relu", 0.5, 0.0),
        (Binary("add", "x"), {"y": Eltwise("tanh")}),
    ],
    ids=str,
)
def test_values_come_back(value: Any) -> None:
    found = read(written(value))
    assert (type(found), found, str(found)) == (type(value), value, str(value))


def test_read_only_mappings_come_back_as_dictionaries() -> None:
    assert read(written(MappingProxyType({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.zeros((0, 3), np.float64),
        np.array(7, np.uint64),
        np.array([True, False]),
        np.array([1.5, -2], DType.BFLOAT16.numpy),
        np.array([["a", ""], ["\u00e9", "b"]], object),
        np.array([], object),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back(array: np.ndarray) -> None:
    """In any order in memory, between others that are not aligned."""
    before, found, after = read(written((np.ones(3, np.int8), array, np.ones(5, np.int8))))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(before, np.ones(3))
    np.testing.assert_array_equal(after, np.ones(5))
    assert not found.flags.writeable


def test_scalars_of_numpy_keep_their_type() -> None:
    found = read(written(np.float16(1.5)))
    assert (type(found), found) == (np.float16, 1.5)


def test_operators_come_back_with_their_attributes() -> None:
    """Those whose attributes are declared, those that are data classes, and those without any."""
    nodes = [Node(f"n{i}", op, ("x",), ("y",)) for i, op in enumerate((Elu(alpha=0.5), CachedAttention(2, 1, 16), Copy()))]
    packages = (*PACKAGES, "dovetail_ops_onnx")
    elu, attention, copy = read(written(tuple(nodes), packages), packages)
    assert [type(node.op) for node in (elu, attention, copy)] == [Elu, CachedAttention, Copy]
    assert (elu.name, elu.op.alpha, elu.inputs, elu.outputs) == ("n0", 0.5, ("x",), ("y",))
    assert vars(attention.op) == vars(nodes[1].op)


def test_the_node_whose_operator_cannot_be_written_is_named() -> None:
    nodes = (Node("first", Copy(), ("x",), ("y",)), Node("second", Elu(), ("y",), ("z",)))
    with pytest.raises(UsageError, match=r"node .*second.* has the class dovetail_ops_onnx\.elu\.Elu") as error:
        written(nodes)
    assert "compile the model in each process" in str(error.value)


def test_one_object_is_written_once() -> None:
    array, type_ = np.arange(5), TensorType.of(np.zeros((2, 3), np.float32))
    content = written((array, [array, type_], {"again": type_}))
    first, (second, one), others = read(content)
    assert first is second
    assert one is others["again"]
    assert one == type_
    assert len(header_of(content)[0]["arrays"]) == 1


def test_large_arrays_stay_in_the_file_and_small_ones_do_not_keep_it() -> None:
    large, small = np.zeros(SMALLEST_REGION, np.uint8), np.zeros(SMALLEST_REGION - 1, np.uint8)
    file = written((small, large))
    header, start = header_of(file)
    places = [place for _, _, _, place in header["arrays"]]
    assert [place % 64 for place in (start, *places)] == [0, 0, 0]
    found = read(file)
    assert [np.shares_memory(one, file) for one in found] == [False, True]


def test_arrays_of_other_files_are_only_referred_to() -> None:
    """At any byte there, where those of the file itself are aligned."""
    other, own = np.frombuffer(bytes(3) + np.arange(5, dtype="<i4").tobytes(), np.uint8), np.arange(6, dtype=np.int32)
    there = other[3:].view("<i4")
    file = np.frombuffer(b"".join(packed({}, (own, there), PACKAGES, lambda a: (1, 3) if a is there else None)), np.uint8)
    header, start = header_of(file)
    regions = [lambda offset, size, of=of: of[offset : offset + size] for of in (file, other)]
    assert [array.tolist() for array in unpacked(header, regions, start, PACKAGES)] == [own.tolist(), there.tolist()]
    assert file.size == start + own.nbytes
    with pytest.raises(Damaged, match="an array is outside of it"):
        unpacked(header, regions[:1], start, PACKAGES)
    with pytest.raises(Damaged, match="an array is outside of it"):
        unpacked(header, [regions[0], lambda offset, size: other[offset : offset + size - 1]], start, PACKAGES)


@pytest.mark.parametrize("count", [1, 8, 9, 64, SMALLEST_REGION + 3])
def test_every_changed_byte_of_an_array_is_seen(count: int) -> None:
    """Of all places for few bytes, of some for many; also where a whole block of a disk was never written."""
    file = written((np.arange(1, count + 1, dtype=np.uint8), np.ones(3, np.int8)))
    _, start = header_of(file)
    for place in range(start, start + count, 1 + count // 64):
        changed = file.copy()
        changed[place] ^= 1 << place % 8
        with pytest.raises(Damaged, match="an array in it is damaged"):
            read(changed)
    lost = file.copy()
    lost[start : start + 4096] = 0
    with pytest.raises(Damaged, match="an array in it is damaged"):
        read(lost)
    assert [array.size for array in read(file)] == [count, 3]


def test_what_it_was_made_for_is_read_alone() -> None:
    assert header_of(written(1))[0]["made_for"] == {"version": "1"}


def test_headers_that_do_not_fit_the_file_are_refused() -> None:
    file = written(np.ones(3, np.int8))
    with pytest.raises(Damaged, match="it is truncated"):
        header_of(file[:-1])
    with pytest.raises(Damaged, match="bytes were appended"):
        header_of(np.append(file, np.uint8(0)))
    with pytest.raises(Damaged, match="it is damaged or truncated"):
        header_of(file[:40])
    with pytest.raises(Damaged, match="it was not written by export_model"):
        header_of(file[1:])
    with pytest.raises(Damaged, match="it is truncated"):
        header_of(np.frombuffer(b"".join(packed([], 1, PACKAGES)), np.uint8))  # type: ignore[arg-type]


class Level(Enum):
    LOW = 1


@dataclasses.dataclass(frozen=True)
class Outside:
    x: int


def _local() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Local:
        x: int

    Local.__module__ = "dovetail.graph.types"
    return Local(1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "the model holds a object"),
        (b"bytes", "the model holds a bytes"),
        (1j, "the model holds a complex"),
        (np.array([None], object), "holds an array with a NoneType"),
        (Outside(1), "has the class .*Outside, which is in no installed plugin"),
        (Level.LOW, "has the class .*Level, which is in no installed plugin"),
        (_local(), "has the class .*Local, which is in no installed plugin"),
    ],
    ids=["object", "bytes", "complex", "array", "class", "enum", "local"],
)
def test_what_is_no_data_of_dovetail_is_refused(value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        written([value])


ELTWISE = ["dovetail.graph.post_ops", "Eltwise"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arrays": [["int8", [3], 0, 1]]}, "an array is outside of it"),
        ({"arrays": [["int8", [-3], 0, 0]]}, "an array is outside of it"),
        ({"arrays": [["int8", [3], 0, -64]]}, "an array is outside of it"),
        ({"arrays": [["int8", [3], 0, 6400]]}, "an array is outside of it"),
        ({"arrays": [["int8", [65], 0, 0]]}, "an array is outside of it"),
        ({"arrays": [["int8", [3], 1, 0]]}, "an array is outside of it"),
        ({"arrays": [["int8", [3], -1, 0]]}, "an array is outside of it"),
        ({"arrays": [["int9", [3], 0, 0]]}, "its content is malformed"),
        ({"classes": [["os", "system"]]}, "the module 'os', which is in no installed plugin"),
        ({"classes": [["dovetail.graph types", "x"]]}, "which is in no installed plugin"),
        ({"classes": [["dovetail.__main__", "x"]]}, "which is in no installed plugin"),
        ({"classes": [["dovetail.planning.plan_format", "packed"]]}, "the class .*packed', which is not there"),
        ({"classes": [["dovetail.planning.plan_format", "_Packer"]]}, "the class .*_Packer', which is not there"),
        ({"classes": [["dovetail.planning.plan_format", "DType"]]}, "the class .*DType', which is not there"),
        ({"objects": [["array", 1]]}, "its content is malformed"),
        ({"objects": [["text", [1], [2]]]}, "an array of texts has something else"),
        ({"objects": [["text", [2], ["a"]]]}, "its content is malformed"),
        ({"root": {"": 9}}, "its content is malformed"),
        ({"classes": [ELTWISE], "objects": [[0, "relu", 0.0, 0.0, 1.0, 1]]}, "its content is malformed"),
        ({"classes": [ELTWISE], "objects": [[0, "relu"], [0]]}, "its content is malformed"),
    ],
    ids=str,
)
def test_what_was_not_written_so_is_refused(change: dict[str, Any], said: str) -> None:
    file = written(np.ones(3, np.int8))
    header, start = header_of(file)
    with pytest.raises(Damaged, match=said):
        unpacked({**header, **change}, [lambda offset, size: file[max(0, offset) : offset + size]], start, PACKAGES)
