"""Messages of ONNX are decoded as protobuf decodes them, with the vendored descriptor."""

import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from onnx import helper

from dovetail_frontend_onnx import messages, protos
from dovetail_frontend_onnx.wire_format import (
    BYTES,
    BYTES_LIST,
    ENUM,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INT64S,
    MESSAGE,
    MESSAGES,
    NUMBERS,
    TEXT,
    TEXTS,
    UNREAD,
    Malformed,
    Message,
    TooLarge,
    by_tag,
    decode,
)

INTEGERS = (0, 1, -1, 127, 128, 300, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
TEXTS_OF_FILES = ("", "x", "é", "a longer name" * 20)


def _is_list(field: Any) -> bool:
    """Protobuf before 6.31 knows labels, which later ones warn of."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _value(field: Any, rng: random.Random) -> Any:
    kinds = type(field)
    if field.enum_type is not None:
        return rng.choice([one.number for one in field.enum_type.values])
    if field.type in (kinds.TYPE_FLOAT, kinds.TYPE_DOUBLE):
        return float(np.float32(rng.choice([0.0, -1.5, 1e30, 0.1])))
    if field.type == kinds.TYPE_STRING:
        return rng.choice(TEXTS_OF_FILES)
    if field.type == kinds.TYPE_BYTES:
        return rng.choice([b"", b"\xff\x00", bytes(200)])
    most = {kinds.TYPE_INT32: 2**31 - 1, kinds.TYPE_UINT64: 2**64 - 1}.get(field.type, 2**63 - 1)
    least = 0 if field.type == kinds.TYPE_UINT64 else -most - 1
    return rng.choice([n for n in INTEGERS if least <= n <= most])


def _filled(message: Any, rng: random.Random, depth: int = 0) -> Any:
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4 + 0.05 * depth:
            continue
        count = rng.choice([0, 1, 1, 2, 5, 90 if field.message_type is None else 3]) if _is_list(field) else 1
        for _ in range(count):
            if field.message_type is not None:
                if depth < 5:
                    target = getattr(message, field.name)
                    inner = target.add() if _is_list(field) else target
                    inner.SetInParent() if not _is_list(field) else None
                    _filled(inner, rng, depth + 1)
            elif _is_list(field):
                getattr(message, field.name).append(_value(field, rng))
            else:
                setattr(message, field.name, _value(field, rng))
    return message


def _numbers(parts: Any, dtype: Any) -> list[Any]:
    found: list[Any] = [np.atleast_1d(np.asarray(one, dtype)) for one in parts]
    return np.concatenate(found).tolist() if found else []


def _same(found: Message, expected: Any) -> None:
    """Each field that the class knows is as protobuf has it, defaults too."""
    descriptors = {field.number: field for field in expected.DESCRIPTOR.fields}
    for tag, field in type(found).FIELDS.items():
        descriptor = descriptors[tag >> 3]
        wanted, value = getattr(expected, descriptor.name), getattr(found, field.name, None)
        if not _is_list(descriptor):
            assert found.has(field.name) == expected.HasField(descriptor.name)
        if descriptor.containing_oneof is not None:
            assert found.value == expected.WhichOneof("value")  # type: ignore[attr-defined]
        if field.kind == MESSAGE and found.has(field.name):
            _same(value, wanted)
        elif field.kind == MESSAGES:
            assert len(value) == len(wanted)
            for one, other in zip(value, wanted, strict=True):
                _same(one, other)
        elif field.kind == UNREAD:
            assert type(wanted).FromString(value) == wanted
        elif field.kind == NUMBERS:
            assert _numbers(value, field.of) == list(wanted)
        elif field.kind == BYTES_LIST and descriptor.message_type is not None:
            assert [GetMessageClass(descriptor.message_type).FromString(one) for one in value] == list(wanted)
        elif field.kind not in (MESSAGE, BYTES):
            assert (list(value) if _is_list(descriptor) else value) == (list(wanted) if _is_list(descriptor) else wanted)
        elif field.kind == BYTES and descriptor.message_type is None:
            assert value == wanted


@pytest.mark.parametrize("seed", range(30))
def test_random_models(seed: int) -> None:
    expected = _filled(messages.ModelProto(), random.Random(seed))
    _same(decode(protos.ModelProto, expected.SerializeToString()), expected)


@pytest.mark.parametrize("seed", range(10))
def test_messages_after_each_other_are_merged(seed: int) -> None:
    rng = random.Random(seed)
    content = b"".join(_filled(messages.ModelProto(), rng, 2).SerializeToString() for _ in range(3))
    _same(decode(protos.ModelProto, content), messages.ModelProto.FromString(content))


def _parsed(kind: type[Message], content: bytes) -> Message | None:
    try:
        return decode(kind, content)
    except Malformed:
        return None


def _by_protobuf(content: bytes) -> Any:
    try:
        return messages.ModelProto.FromString(content)
    except DecodeError:
        return None


def _small(seed: int) -> bytes:
    rng = random.Random(seed)
    content: bytes = min(
        (_filled(messages.ModelProto(), rng, 2).SerializeToString() for _ in range(20)), key=lambda c: len(c) or 9e9
    )
    return content


@pytest.mark.parametrize("seed", range(10))
def test_content_that_is_cut_off(seed: int) -> None:
    content = _small(seed)
    for length in range(len(content)):
        found, expected = _parsed(protos.ModelProto, content[:length]), _by_protobuf(content[:length])
        assert (found is None) == (expected is None)


@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes(seed: int) -> None:
    """All that protobuf takes is taken, with the same fields; messages that nobody reads may be damaged."""
    rng, content = random.Random(seed), _small(seed)
    for _ in range(200):
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 4])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        expected = _by_protobuf(bytes(changed))
        if expected is not None:
            _same(decode(protos.ModelProto, bytes(changed)), expected)


def _known(kind: type[Message], seen: set[type[Message]]) -> Iterator[type[Message]]:
    if kind not in seen:
        seen.add(kind)
        yield kind
        for field in kind.FIELDS.values():
            if field.kind in (MESSAGE, MESSAGES):
                yield from _known(field.of, seen)


def test_fields_are_those_of_onnx() -> None:
    """By number, name, type and whether they are lists; choices are those of a `oneof`, all of them."""
    file = messages.ModelProto.DESCRIPTOR.file
    descriptors = dict(file.message_types_by_name)
    descriptors["Dimension"] = descriptors["TensorShapeProto"].nested_types_by_name["Dimension"]
    nested = descriptors["TypeProto"].nested_types_by_name
    kinds = type(descriptors["NodeProto"].fields[0])
    types = {TEXT: 9, TEXTS: 9, INT64: 3, INT64S: 3, INT32: 5, ENUM: 14, FLOAT: 2, FLOATS: 2}
    dtypes = {np.float32: 2, np.float64: 1, np.int32: 5, np.int64: 3, np.uint64: 4}
    assert (kinds.TYPE_STRING, kinds.TYPE_ENUM) == (9, 14)
    found = [*_known(protos.ModelProto, set()), protos.ValueInfoProto, *_known(protos.TypeProto, set())]
    for kind in dict.fromkeys(found):
        same = {"_TensorType": nested["Tensor"], "_ElementType": nested["Sequence"], "_MapType": nested["Map"]}
        descriptor = same.get(kind.__name__) or descriptors[kind.__name__]
        for tag, field in kind.FIELDS.items():
            one = descriptor.fields_by_number[tag >> 3]
            assert one.name == field.name
            assert _is_list(one) == (field.kind in (TEXTS, BYTES_LIST, MESSAGES, INT64S, FLOATS, NUMBERS)), one.full_name
            if field.kind in (*types, NUMBERS):
                assert one.type == (dtypes[field.of] if field.kind == NUMBERS else types[field.kind]), one.full_name
            if field.kind == ENUM:
                assert sorted(value.number for value in one.enum_type.values) == [*field.of]
            assert field.is_choice == (one.containing_oneof is not None)
            if one.containing_oneof is not None:
                assert {choice.name for choice in one.containing_oneof.fields} <= {f.name for f in kind.FIELDS.values()}
    names = file.message_types_by_name["AttributeProto"].enum_types_by_name["AttributeType"].values_by_number
    assert dict(enumerate(protos.AttributeProto.KINDS)) == {n: v.name for n, v in names.items()}
    assert all(getattr(protos.AttributeProto, name, number) == number for number, name in enumerate(protos.AttributeProto.KINDS))


@pytest.mark.parametrize("count", [63, 64, 65, 1000, 700_000])
def test_long_lists(count: int) -> None:
    """Of numbers of one to ten bytes, and other fields between them; longer than what NumPy takes at once."""
    rng = np.random.default_rng(count)
    ints = (rng.integers(-(2**62), 2**62, count) >> rng.integers(0, 62, count)).tolist()
    floats = rng.standard_normal(count).astype(np.float32).tolist()
    content = messages.AttributeProto(ints=ints).SerializeToString() + messages.AttributeProto(floats=floats).SerializeToString()
    content += messages.AttributeProto(ints=[5, -5], name="a").SerializeToString()
    found = decode(protos.AttributeProto, content)
    assert (found.ints, found.floats, found.name) == ([*ints, 5, -5], floats, "a")
    strings = [b"s" * int(length) for length in rng.integers(0, 140, count % 10_000)]
    expected = messages.AttributeProto(strings=strings, name="b")
    _same(decode(protos.AttributeProto, expected.SerializeToString()), expected)
    tensor = messages.TensorProto(int64_data=ints, int32_data=[n % 2**31 - 2**30 for n in ints], float_data=floats)
    _same(decode(protos.TensorProto, tensor.SerializeToString()), tensor)


def test_packed_and_single_numbers() -> None:
    packed = messages.TensorProto(dims=[1], int64_data=[1, -2, 300], float_data=[1.5, 2.5]).SerializeToString()
    single = b"\x38\x07" + b"\x25" + struct.pack("<f", 3.5) + b"\x0a\x02\x05\x06"  # int64_data and float_data, then packed dims
    content = packed + single + packed
    _same(decode(protos.TensorProto, content), messages.TensorProto.FromString(content))


GROUPS = {
    "empty": (b"\xfb\x07\xfc\x07", True),
    "with all kinds": (b"\xfb\x07\x08\x96\x01\x0d1234\x0912345678\x12\x02ab\x1b\x1c\xfc\x07", True),
    "not ended": (b"\xfb\x07\x08\x01", False),
    "ended by another": (b"\xfb\x07\xf4\x07", False),
    "not begun": (b"\xfc\x07", False),
    "too deep": (b"\xfb\x07" * 200 + b"\xfc\x07" * 200, False),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str) -> None:
    content, is_fine = GROUPS[name]
    assert (_parsed(protos.ModelProto, content) is not None) == (_by_protobuf(content) is not None) == is_fine


@pytest.mark.parametrize("content", [b"\x00\x00", b"\x02\x00", b"\x0e", b"\x0f", b"\x08" + b"\xff" * 10 + b"\x01", b"\xff" * 12])
def test_malformed(content: bytes) -> None:
    assert _by_protobuf(content) is None
    with pytest.raises(Malformed):
        decode(protos.ModelProto, content)


def test_a_name_that_is_not_utf_8() -> None:
    assert decode(protos.NodeProto, b"\x1a\x02\xff\xfe").name == b"\xff\xfe"


def _field(number: int, content: bytes) -> bytes:
    out, length = bytearray([number << 3 | 2]), len(content)
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + content


SMALL = {
    "nodes": _field(7, _field(1, b"") * 700_000),
    "attributes": _field(7, _field(1, _field(5, b"") * 1_000_000)),
    "tensors in attributes": _field(7, _field(1, _field(5, _field(10, b"") * 1_000_000))),
    "packed numbers": _field(7, _field(5, _field(7, bytes(20_000_000)))),
    "unknown fields": b"\xf8\x7f\x05" * 20_000_000,
}


@pytest.mark.parametrize("content", SMALL.values(), ids=SMALL)
def test_small_messages_are_counted(content: bytes) -> None:
    with pytest.raises(TooLarge):
        decode(protos.ModelProto, content, 3 * len(content) + (192 << 20) if len(content) < 10**7 else 2 * 10**8)


def test_usual_content_is_not_refused() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(50_000)]
    content = helper.make_graph(nodes, "g", [], []).SerializeToString()
    assert len(decode(protos.GraphProto, content, 3 * len(content) + (192 << 20)).node) == 50_000
    numbers = messages.TensorProto(data_type=10, dims=[10**7], int32_data=np.full(10**7, 15000, np.int32)).SerializeToString()
    assert decode(protos.TensorProto, numbers, 3 * len(numbers) + (192 << 20)).int32_data[0].size == 10**7


@pytest.mark.parametrize("field", [b"\x40\xff\x01", b"\x3d\x00\x00\x80\x3f", b"\x4a\x04LEAF", b"\x4a\x00"])
def test_numbers_and_strings_of_attributes_are_read_in_any_number(field: bytes) -> None:
    """As in tree ensembles."""
    found = decode(protos.AttributeProto, field * (2**22 // len(field)), 2000)
    assert len(found.ints) + len(found.floats) + len(found.strings) == 2**22 // len(field)


def test_tags_of_lists_of_numbers() -> None:
    assert sorted(by_tag({8: protos.Field("ints", INT64S)})) == [8 << 3, 8 << 3 | 2]
