"""Malformed files: each is refused with the file, the place in it, and the reason."""

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError, FormatError, GraphError, UsageError
from dovetail_frontend_pzkm import dovetail_read_model
from dovetail_frontend_pzkm.schema import PModel, Weights
from dovetail_frontend_pzkm.wire import read_tables, write_tables

Change = Callable[[Any, PModel], PModel]


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def layer_with(files: Any, stored: PModel, **changes: Any) -> PModel:
    first, *rest = stored.layer_buffer
    return files.without(stored, layer_buffer=(files.without(first, **changes), *rest))


def tensor_with(files: Any, stored: PModel, number: int, **changes: Any) -> PModel:
    tensors = [files.without(t, **changes) if t.id == number else t for t in stored.tensor_buffer]
    return files.without(stored, tensor_buffer=tuple(tensors))


def weights_with(files: Any, stored: PModel, number: int, **changes: Any) -> PModel:
    return tensor_with(files, stored, number, weights=files.without(stored.tensor_buffer[number].weights, **changes))


def shape_with(files: Any, stored: PModel, number: int, **changes: Any) -> PModel:
    return tensor_with(files, stored, number, shape=files.without(stored.tensor_buffer[number].shape, **changes))


def port_with(files: Any, stored: PModel, side: str, number: int) -> PModel:
    port = files.without(getattr(stored.layer_buffer[0], side)[0], tensor_id=number)
    return layer_with(files, stored, **{side: (port,)})


def conv_with(files: Any, stored: PModel, *metas: Any) -> PModel:
    attrs = stored.layer_buffer[0].attrs
    kept = tuple(m for m in attrs.buffer if m.key not in {one.key for one in metas})
    return layer_with(files, stored, attrs=files.without(attrs, buffer=(*kept, *metas)))


def one(kind: str, words: str, inputs: Any = None, output: Any = (1, 2, 2, 2), **attrs: Any) -> tuple[Change, str]:
    """A file of one layer."""
    return lambda f, _: f.one_layer(kind, inputs or {"x": (1, 2, 2, 2)}, output, **attrs), words


TABLE: dict[str, tuple[Change, str]] = {
    "tensor count": (lambda f, m: f.without(m, all_tensor_num=4), "all_tensor_num is 4, but there are 5"),
    "layer count": (lambda f, m: f.without(m, layer_num=7), "layer_num is 7, but there are 2"),
    "input count": (lambda f, m: f.without(m, model_runtime_input_num=2), "model_runtime_input_num is 2"),
    "output count": (lambda f, m: f.without(m, model_runtime_output_num=0), "model_runtime_output_num is 0"),
    "unknown input": (lambda f, m: f.without(m, model_runtime_input_id=(99,)), "the model's input is tensor 99"),
    "unknown output": (lambda f, m: f.without(m, model_runtime_output_id=(98,)), "the model's output is tensor 98"),
    "constant input": (lambda f, m: f.without(m, model_runtime_input_id=(1,)), "the model's input 'w' is a constant"),
    "no outputs": (lambda f, m: f.without(m, model_runtime_output_id=(), model_runtime_output_num=0), "has no outputs"),
    "same id": (lambda f, m: tensor_with(f, m, 4, id=3), "another tensor has the id 3"),
    "no shape": (lambda f, m: tensor_with(f, m, 3, shape=None), "tensor 3 'c': the tensor has no shape"),
    "dimsize": (lambda f, m: shape_with(f, m, 3, dimsize=9), "with dimsize 9"),
    "dims behind": (lambda f, m: shape_with(f, m, 3, dimsize=2), "with dimsize 2"),
    "overflow": (
        lambda f, m: shape_with(f, m, 3, dims=(2**32 - 1,) * 4), "2^63 - 1 elements",
    ),
    "rank": (
        lambda f, m: shape_with(f, m, 3, dims=(1,) * 65, dimsize=65), "rank 65",
    ),
    "data type": (lambda f, m: tensor_with(f, m, 3, data_type=16), "the data type has the unknown number 16"),
    "data type below 0": (lambda f, m: tensor_with(f, m, 3, data_type=-1), "the unknown number -1"),
    "layout": (lambda f, m: tensor_with(f, m, 3, data_layout=4), "the data layout has the unknown number 4"),
    "tensor type": (lambda f, m: tensor_with(f, m, 3, tesor_type=2), "the tensor type has the unknown number 2"),
    "no weights": (lambda f, m: tensor_with(f, m, 1, weights=None), "tensor 1 'w': the constant tensor has no weights"),
    "short weights": (
        lambda f, m: weights_with(f, m, 1, buffer=b"12345"), "480 in 1920",
    ),
    "weights count": (
        lambda f, m: weights_with(f, m, 1, ele_num=2**64 - 1),
        "18446744073709551615 elements",
    ),
    "terabytes declared": (
        lambda f, m: shape_with(f, m, 1, dims=(10**6, 10**6, 1, 1)), "1000000000000 in",
    ),
    "bool": (lambda f, m: weights_with(f, tensor_with(f, m, 2, data_type=1), 2, buffer=b"\2" * 10), "neither 0 nor 1"),
    "four bits": (lambda f, m: weights_with(f, tensor_with(f, m, 2, data_type=3), 2, buffer=b"\x10" * 10), "not within 0 and 15"),
    "unknown type": (lambda f, m: layer_with(f, m, type="Convolution2dLayr"), "Did you mean"),
    "no type": (lambda f, m: layer_with(f, m, type=""), "the layer type '' is unknown"),
    "unknown tensor": (
        lambda f, m: port_with(f, m, "input_id", 55), "tensor 55, which the file",
    ),
    "no inputs": (lambda f, m: layer_with(f, m, input_id=()), "the layer has 0 inputs; accepted: 2 to 3"),
    "no input port": (lambda f, m: layer_with(f, m, input_id=m.layer_buffer[0].input_id[:2]), "input 0 is missing"),
    "no output": (lambda f, m: layer_with(f, m, output_id=()), "the layer has no output"),
    "two outputs": (lambda f, m: layer_with(f, m, output_id=m.layer_buffer[0].output_id * 2), "the layer has 2 outputs"),
    "constant output": (
        lambda f, m: port_with(f, m, "output_id", 1), "'w' is a constant tensor",
    ),
    "self-loop": (
        lambda f, m: f.model([f.tensor(0, (1, 1, 1, 1))], [f.layer("FloorLayer", {"x": 0}, [0])], [], [0]), "cycle",
    ),
    "cycle": (
        lambda f, m: f.model(
            [f.tensor(i, (1, 1, 1, 1)) for i in range(2)],
            [f.layer("FloorLayer", {"x": 0}, [1], "a"), f.layer("FloorLayer", {"x": 1}, [0], "b")], [], [1],
        ), "cycle",
    ),
    "two producers": (
        lambda f, m: f.without(m, layer_buffer=(*m.layer_buffer, m.layer_buffer[0]), layer_num=3), "already",
    ),
    "input computed": (lambda f, m: f.without(m, model_runtime_input_id=(3,)), "already"),
    "nothing produces": (lambda f, m: f.without(m, layer_buffer=m.layer_buffer[1:], layer_num=1), "nothing defines"),
    "attribute twice": (lambda f, m: conv_with(f, m, f.meta("padTop", 1), f.meta("padTop", 1)), "'padTop' is there twice"),
    "unknown attribute": (lambda f, m: conv_with(f, m, f.meta("padUp", 1)), "'padUp' is unknown; Convolution2dLayer has"),
    "attribute type": (lambda f, m: conv_with(f, m, f.without(f.meta("padTop", 1), buffer_data=12)), "data type number 12"),
    "attribute length": (lambda f, m: conv_with(f, m, f.without(f.meta("padTop", 1), buffer_ele_num=3)), "3 elements of 4"),
    "attribute count": (lambda f, m: conv_with(f, m, f.meta("padTop", [1, 2])), "it has 2 elements; accepted: 1"),
    "attribute text": (lambda f, m: conv_with(f, m, f.meta("padTop", "one")), "it is 'one'; accepted: numbers"),
    "attribute UTF-8": (lambda f, m: conv_with(f, m, f.without(f.meta("dataLayout", "a"), buffer=b"\xff")), "it is not UTF-8"),
    "attribute NaN": (lambda f, m: conv_with(f, m, f.meta("padTop", float("nan"))), "it is nan; accepted: an integer"),
    "attribute part": (lambda f, m: conv_with(f, m, f.meta("padTop", 1.5)), "it is 1.5; accepted: an integer"),
    "layout name": (lambda f, m: conv_with(f, m, f.meta("dataLayout", "CHWN")), "it is 'CHWN'; accepted: NCHW, NHWC"),
    "enum number": (lambda f, m: conv_with(f, m, f.meta("dataLayout", 7)), "it is '[7]'; accepted: NCHW, NHWC"),
    "stride 0": (lambda f, m: conv_with(f, m, f.meta("strideX", 0)), "strides"),
    "dilation 0": (lambda f, m: conv_with(f, m, f.meta("dilationY", 0)), "dilations"),
    "kernel too large": (lambda f, m: conv_with(f, m, f.meta("dilationY", 2**31)), "layer 0 'conv'"),
    "wrong pads": (lambda f, m: conv_with(f, m, f.meta("padTop", 5)), "the file declares its output 'c'"),
    "huge pads": (lambda f, m: conv_with(f, m, f.meta("padTop", 2**32 - 1)), "the file declares its output 'c'"),
    "channels": (lambda f, m: shape_with(f, m, 0, dims=(1, 4, 16, 16)), "the weights [10, 3, 4, 4] are for 3"),
    "bias": (
        lambda f, m: weights_with(f, shape_with(f, m, 2, dims=(9, 1, 1, 1)), 2, ele_num=9, buffer=bytes(36)), "accepted: [10]",
    ),
    "function": one("ActivationLayer", "'activationFunction' is empty and has no default"),
    "function name": one("ActivationLayer", "it is 'Softmax'; accepted: Sigmoid", activationFunction="Softmax"),
    "alpha": one("ActivationLayer", "'a' is empty", activationFunction="Elu"),
    "infinite alpha": one("ActivationLayer", "accepted: a finite number", activationFunction="Elu", a=float("inf")),
    "no target": one("ReshapeLayer", "'targetShape' is empty"),
    "target": one("ReshapeLayer", "does not have as many elements", targetShape=[3]),
    "target of 10^18": one("ReshapeLayer", "does not have as many elements", targetShape=[2**31, 2**31]),
    "mapping": one("PermuteLayer", "accepted: each of 0 to 3 once", dimMappings="0,1,1,2"),
    "mapping text": one("PermuteLayer", "'dimMappings': it is '__import__'", dimMappings="__import__"),
    "axis": one("ConcatLayer", "concatAxis is 4; accepted: 0 to 3", concatAxis=4),
    "views": one("ConcatLayer", "numViews is 2; the layer has 1 inputs", concatAxis=1, numViews=2),
    "joined": one("ConcatLayer", "differ beside axis 1", {"a": (1, 2, 2, 2), "b": (1, 2, 3, 2)}, (1, 4, 2, 2), concatAxis=1),
    "split": one("SplitterLayer", "have [2] of axis 0; the input [1, 2, 2, 2] has 1", output=(2, 2, 2, 2), concatAxis=0),
    "pad list": one("PadLayer", "padList has 3 numbers; accepted: 8", padList=[1, 2, 3]),
    "huge padding": one("PadLayer", "the file declares", padList=[2**32 - 1] * 8),
    "block": one("SpaceToDepthLayer", "blockSize is 3; accepted: a divisor", blockSize=3),
    "block 0": one("SpaceToDepthLayer", "blockSize is 0", blockSize=0),
    "new axis": one("StridedSliceLayer", "'newAxisMask' is 1", begin=[0], end=[1], newAxisMask=1),
    "slice": one("StridedSliceLayer", "do not fit", begin=[0, 0], end=[1]),
    "slice step": one("StridedSliceLayer", "do not fit", begin=[0], end=[1], stride=[0]),
    "slice one": one("StridedSliceLayer", "begin is 9, where one element of 1", begin=[9], end=[10], shrinkAxisMask=1),
    "mean axis": one("MeanLayer", "axis is [7]", axis=[7]),
    "LRN kind": one("NormalizationLayer", "normChannelType is Within", normChannelType="Within", normSize=3),
    "resize": one("ResizeLayer", "cannot become 0 x 2", targetHeight=0, targetWidth=2),
    "resize memory": one("ResizeLayer", "the file declares", targetHeight=2**32 - 1, targetWidth=2**32 - 1),
    "row": one("FullyConnectedLayer", "8 numbers a row", {"input": (1, 2, 2, 2), "weights": zeros(5, 3)}, (1, 3)),
    "broadcast": one("AdditionLayer", "do not broadcast to", {"A": (1, 2, 2, 2), "B": (1, 2, 3, 2)}),
    "output type": one("EqualLayer", "the layer gives bool", {"A": (1, 2, 2, 2), "B": zeros(1, 2, 2, 2)}),
    "one input": one("DivisionLayer", "the layer has 1 inputs; accepted: 2"),
    "gather": one("GatherLayer", "do not give the output", {"x": (1, 2, 2, 2), "i": np.zeros(3, np.int32)}),
    "pool size": one("Pooling2dLayer", "'poolHeight' is empty"),
    "pool 0": one("Pooling2dLayer", "layer 0 'layer' (Pooling2dLayer)", poolHeight=0, poolWidth=0),
    "pool type": one("Pooling2dLayer", "accepted: Max, Average, L2", poolHeight=1, poolWidth=1, poolType="MIN"),
    "weights rank": one("Convolution2dLayer", "accepted: four dimensions", {"input": (1, 2, 2, 2), "weights": zeros(0, 1, 1, 1)}),
    "stack": one("StackLayer", "numInputs is 3", numInputs=3),
    "stack axis": one("StackLayer", "axis is 9", axis=9),
    "variance": one(
        "BatchNormalizationLayer", "accepted: [2]",
        {"input": (1, 2, 2, 2), "mean": zeros(3), **dict.fromkeys(("variance", "beta", "gamma"), zeros(2))},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_malformed_models(files: Any, core: dovetail.Core, tmp_path: Path, name: str) -> None:
    change, words = TABLE[name]
    path = tmp_path / "bad.pzkm"
    path.write_bytes(write_tables(change(files, files.network(size=16))))
    with pytest.raises((FormatError, GraphError)) as caught:
        core.read_model(path)
    text = str(caught.value)
    assert words in text
    assert text.startswith(str(path))
    assert text.replace("\n", "").isprintable()


def test_names_in_messages_are_escaped(files: Any) -> None:
    stored = layer_with(files, files.network(size=16), name="\x1b[31m\n\0../" + "x" * 10**6, type="y" * 10**6)
    with pytest.raises(FormatError) as caught:
        files.read(stored)
    assert len(str(caught.value)) < 4000
    assert "\x1b" not in str(caught.value)


HOSTILE = "\x1b[31m\x00\u202e" + "x" * 5000


@pytest.mark.parametrize("name", TABLE)
def test_names_of_tensors_are_escaped_in_every_message(files: Any, name: str) -> None:
    stored = TABLE[name][0](files, files.network(size=16))
    hostile = tuple(files.without(t, name=HOSTILE + t.name) for t in stored.tensor_buffer)
    with pytest.raises((FormatError, GraphError)) as caught:
        files.read(files.without(stored, tensor_buffer=hostile))
    text = str(caught.value)
    assert text.replace("\n", "").isprintable()
    assert text.count("\n") <= 1
    assert len(text) < 4000


# --- bytes ----------------------------------------------------------------------------------------------------------------


def content_of(files: Any) -> bytes:
    return write_tables(files.network(size=16))


def test_cut_off_anywhere(files: Any) -> None:
    content = content_of(files)
    for end in (*range(40), *range(40, len(content), 97)):
        with pytest.raises(FormatError):
            dovetail_read_model(content[:end], {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "a PNG image"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(64), "a ZIP archive"),
        (b"<!DOCTYPE html>", "an XML or HTML file"),
        (bytes(4) + b"TFL3" + bytes(64), "a TensorFlow Lite model"),
        (b"\xff" * 64, "lies at bytes"),
        (bytes(64), "the vtable at byte 0 has sizes 0 and 0"),
        (b"\x08\0\0\0PZKM\x04\0\0\0\x02\0\0\0", "a vtable lies at bytes"),
        (b"\x08\0\0\0PZKM\x00\0\0\x80", "a vtable lies at bytes"),
    ],
)
def test_other_content(content: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        dovetail_read_model(content, {})


def slot_of(content: bytes, index: int) -> int:
    """Where the root table stores its field."""
    root = int.from_bytes(content[:4], "little")
    vtable = root - int.from_bytes(content[root : root + 4], "little", signed=True)
    return root + int.from_bytes(content[vtable + 4 + 2 * index : vtable + 6 + 2 * index], "little")


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("index", [1, 6, 9, 11])
def test_offsets_that_lead_astray(files: Any, index: int, value: int) -> None:
    content = bytearray(content_of(files))
    at = slot_of(content, index)
    content[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(DovetailError) as caught:
        dovetail_read_model(bytes(content), {})
    assert ": " in str(caught.value)


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 10**6])
def test_vectors_longer_than_the_file(files: Any, count: int) -> None:
    content = bytearray(content_of(files))
    at = slot_of(content, 11)
    vector = at + int.from_bytes(content[at : at + 4], "little")
    content[vector : vector + 4] = count.to_bytes(4, "little")
    with pytest.raises(FormatError, match=rf"layer_buffer: a vector of {count} lies at bytes"):
        dovetail_read_model(bytes(content), {})


def shared_tables(count: int) -> bytes:
    """A root whose layers are one layer `count` times, whose inputs are one port `count` times."""
    port = struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    body = bytearray(struct.pack("<I", 8) + bytes(4))

    def vtable(slots: int, used: int) -> bytes:
        return struct.pack(f"<HH{slots}H", 4 + 2 * slots, 8, *(4 if i == used else 0 for i in range(slots)))

    root_vtable = vtable(12, 11)
    body = bytearray(struct.pack("<I", 4 + len(root_vtable)) + root_vtable)
    body += struct.pack("<iI", len(root_vtable), 4)  # the root table; its vector follows
    layers_at = len(body)
    body += struct.pack("<I", count) + bytes(4 * count)
    layer_vtable = vtable(9, 5)
    body += layer_vtable
    layer_at = len(body)
    body += struct.pack("<iI", len(layer_vtable), 4)
    ports_at = len(body)
    body += struct.pack("<I", count) + bytes(4 * count)
    body += port
    port_at = len(body) - 4
    for vector, target in ((layers_at, layer_at), (ports_at, port_at)):
        for i in range(count):
            place = vector + 4 + 4 * i
            body[place : place + 4] = (target - place).to_bytes(4, "little")
    return bytes(body)


def test_the_crafted_file_is_one() -> None:
    assert len(read_tables(shared_tables(2), PModel).layer_buffer[1].input_id) == 2


@pytest.mark.parametrize("count", [100, 1000, 50_000])
def test_tables_that_many_offsets_share_do_not_multiply(count: int) -> None:
    content = shared_tables(count)
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"parts overlap|more than 50000 tables"):
        dovetail_read_model(content, {})
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 4 * len(content) + 256 * 2**20


def test_what_takes_more_memory_than_bytes_is_bounded(files: Any) -> None:
    stored = files.network(size=16)
    shape = files.without(stored.tensor_buffer[3].shape, dims=(1,) * 100_001)
    many = files.without(stored, model_runtime_input_id=(0,) * 100_001)
    texts = files.without(stored, author="\U0001f331" * (2**22 + 1))
    attribute = conv_with(files, stored, files.meta("padTop", "1" * 10_001))
    for broken, words in (
        (tensor_with(files, stored, 3, shape=shape), "tensor_buffer[3].shape.dims: there are 100001 numbers"),
        (many, "model_runtime_input_id: there are 100001 numbers"),
        (texts, "author: the names and texts of the file have more than 16777216 bytes"),
        (attribute, "attribute 'padTop': it has 10001 bytes"),
    ):
        with pytest.raises(FormatError) as caught:
            files.read(broken)
        assert words in str(caught.value)


@pytest.mark.parametrize("number", [2, 3])
def test_four_bits_take_two_bytes_for_each_that_is_stored(files: Any, number: int) -> None:
    size = 3 * 2**20 + 5
    packed = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    one = files.tensor(0, (2 * size - 1,))
    weights = Weights(1, 2 * size - 1, packed.tobytes())
    one = files.without(one, tesor_type=0, data_type=number, weights=weights)
    content = write_tables(files.model([one], [], [], [0]))
    tracemalloc.start()
    model = dovetail_read_model(content, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * size + 16 * 2**20
    codes = np.stack([packed & 15, packed >> 4], -1).ravel()[:-1].astype(int)
    (found,) = model.graph.constants.values()
    np.testing.assert_array_equal(found.ravel().astype(int), codes if number == 3 else (codes + 8) % 16 - 8)


def test_no_more_tables_are_written_than_are_read(files: Any) -> None:
    stored = files.network(size=16)
    first = stored.layer_buffer[0]
    with pytest.raises(FormatError, match="the model needs 60034 tables; accepted: at most 50000"):
        write_tables(layer_with(files, stored, input_id=first.input_id * 20_001 + first.input_id[:1]))


def test_reading_takes_no_options(files: Any) -> None:
    with pytest.raises(UsageError, match="no options; given: 'strict'"):
        dovetail_read_model(content_of(files), {"strict": True})
