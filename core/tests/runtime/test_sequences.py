"""Sequences and optionals through the whole runtime."""

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError, OperatorError
from dovetail.graph import DType, Graph, GraphBuilder, Model
from dovetail.op import Operator, OptionalType, SequenceType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat_from_sequence import ConcatFromSequence
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.optional import Optional
from dovetail_ops_onnx.optional_get_element import OptionalGetElement
from dovetail_ops_onnx.optional_has_element import OptionalHasElement
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sequence_at import SequenceAt
from dovetail_ops_onnx.sequence_construct import SequenceConstruct
from dovetail_ops_onnx.sequence_empty import SequenceEmpty
from dovetail_ops_onnx.sequence_erase import SequenceErase
from dovetail_ops_onnx.sequence_insert import SequenceInsert
from dovetail_ops_onnx.sequence_length import SequenceLength
from dovetail_ops_onnx.sequence_map import SequenceMap
from dovetail_ops_onnx.split_to_sequence import SplitToSequence

CORE = dovetail.Core()


def with_inputs(model: Model, **types: SequenceType | OptionalType) -> Model:
    """The model with containers as further inputs."""
    graph = model.graph
    return Model(graph.replace(inputs=(*graph.inputs, *types), types={**graph.types, **types}), source="<test>")


def sequence_model(op: Operator, *constants: object) -> Model:
    """One operator on a sequence of float32 called `s`."""
    g = GraphBuilder()
    y = g.node(op, "s", *(g.constant(c) for c in constants))
    return with_inputs(g.model([y]), s=SequenceType(DType.FLOAT32, None))


ITEMS = [np.float32([1, 2]), np.float32([3]), np.float32([4, 5, 6])]


@pytest.mark.parametrize(
    ("op", "constants", "expected"),
    [
        (SequenceAt(), (np.int64(1),), ITEMS[1]),
        (SequenceAt(), (np.int32(-1),), ITEMS[2]),
        (SequenceInsert(), (np.float32([9]),), [*ITEMS, np.float32([9])]),
        (SequenceInsert(), (np.float32([9]), np.int64(-2)), [ITEMS[0], np.float32([9]), *ITEMS[1:]]),
        (SequenceErase(), (), ITEMS[:2]),
        (SequenceErase(), (np.int64(0),), ITEMS[1:]),
        (SequenceLength(), (), np.int64(3)),
        (ConcatFromSequence(axis=0), (), np.float32([1, 2, 3, 4, 5, 6])),
    ],
    ids=lambda value: value.op_type if isinstance(value, Operator) else "",
)
def test_operators_on_a_sequence(op: Operator, constants: tuple[object, ...], expected: object) -> None:
    (got,) = CORE.compile_model(sequence_model(op, *constants), "NUMPY")({"s": ITEMS}).values()
    assert isinstance(got, list) == isinstance(expected, list)
    for a, b in zip(got, expected, strict=True) if isinstance(expected, list) else [(got, expected)]:
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        (SequenceAt(), (np.int64(3),)),
        (SequenceErase(), (np.int64(-4),)),
        (SequenceInsert(), (np.float32([9]), np.int64(4))),
        (SequenceInsert(), (np.int32([9]),)),
        (ConcatFromSequence(axis=2), ()),
    ],
    ids=lambda value: value.op_type if isinstance(value, Operator) else "",
)
def test_what_does_not_fit_a_sequence_is_an_error(op: Operator, constants: tuple[object, ...]) -> None:
    with pytest.raises(OperatorError, match=op.op_type):
        CORE.compile_model(sequence_model(op, *constants), "NUMPY")({"s": ITEMS})


@pytest.mark.parametrize("device", sorted({info.type for info in CORE.devices}))
def test_tensors_go_into_sequences_and_come_out_on_the_device(device: str, rng: np.random.Generator) -> None:
    g = GraphBuilder()
    a, b = g.input("a", "float32", [2, 3]), g.input("b", "float32", [2, 3])
    made = g.node(SequenceConstruct(), g.node(Add(), a, b), g.node(Relu(), b), g.node(Add(), b, b))
    second = g.node(SequenceAt(), made, g.constant(np.int64(1)))
    joined = g.node(ConcatFromSequence(axis=0, new_axis=1), made)
    compiled = CORE.compile_model(g.model([g.node(Add(), second, a), g.node(Relu(), joined), made]), device)
    for _ in range(2):
        x, y = (rng.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
        results = compiled({"a": x, "b": y})
        np.testing.assert_allclose(results[0], np.maximum(y, 0) + x, rtol=1e-6)
        np.testing.assert_allclose(results[1], np.maximum(np.stack([x + y, np.maximum(y, 0), y + y]), 0), rtol=1e-6)
        np.testing.assert_allclose(results[2][2], y + y, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "split", "expected"),
    [
        (SplitToSequence(axis=1), None, [(2, 1)] * 5),
        (SplitToSequence(axis=1, keepdims=0), None, [(2,)] * 5),
        (SplitToSequence(axis=-1), np.int64(2), [(2, 2), (2, 2), (2, 1)]),
        (SplitToSequence(axis=1), np.int64([1, 4]), [(2, 1), (2, 4)]),
    ],
)
def test_split_to_sequence(op: Operator, split: object, expected: list[tuple[int, ...]]) -> None:
    g = GraphBuilder()
    parts = g.node(op, g.input("x", "float32", [2, 5]), *(() if split is None else (g.constant(split),)))
    data = np.arange(10, dtype=np.float32).reshape(2, 5)
    (got,) = CORE.compile_model(g.model([parts]), "NUMPY")(data).values()
    assert [part.shape for part in got] == expected
    np.testing.assert_array_equal(np.concatenate([p.reshape(2, -1) for p in got], axis=1), data)


def test_a_split_that_does_not_add_up_is_an_error() -> None:
    g = GraphBuilder()
    parts = g.node(SplitToSequence(axis=1), g.input("x", "float32", [2, 5]), g.constant(np.int64([1, 3])))
    with pytest.raises(OperatorError, match="length 5"):
        CORE.compile_model(g.model([parts]), "NUMPY")(np.zeros((2, 5), np.float32))


def test_a_loop_fills_a_sequence_whose_elements_stay_apart() -> None:
    body = GraphBuilder("body")
    iteration = body.input("i", "int64", [])
    going = body.input("going", "bool", [])
    grown = body.node(SequenceInsert(), "items", body.node(Add(), iteration, iteration))
    graph = body.graph([body.node(Identity(), going), grown])
    graph = graph.replace(inputs=(*graph.inputs, "items"), types={**graph.types, "items": SequenceType(DType.INT64, None)})
    g = GraphBuilder()
    empty = g.node(SequenceEmpty(dtype=DType.INT64))
    compiled = CORE.compile_model(g.model([g.node(Loop(body=graph), g.input("n", "int64", []), "", empty)]), "NUMPY")
    assert [int(v) for v in compiled(np.int64(4))[0]] == [0, 2, 4, 6]
    assert compiled(np.int64(0))[0] == []


def test_a_sequence_that_grows_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether elements are in memory that the next run overwrites is checked for new elements only."""
    asked: list[int] = []
    shares = np.may_share_memory
    monkeypatch.setattr(np, "may_share_memory", lambda a, b: asked.append(1) or shares(a, b))
    g = GraphBuilder()
    inserted = g.node(SequenceInsert(), "s", g.input("x", "float32", [1]))
    compiled = CORE.compile_model(with_inputs(g.model([inserted]), s=SequenceType(DType.FLOAT32, None)), "NUMPY")
    sequence = [np.float32([i]) for i in range(50)]
    (got,) = compiled({"x": np.float32([-1]), "s": sequence}).values()
    np.testing.assert_array_equal(np.concatenate(got), [*range(50), -1])
    assert len(asked) <= 2


def test_sequence_map_runs_its_body_on_each_element() -> None:
    body = GraphBuilder("body")
    one, other, same = (body.input(n, "float32", None) for n in ("one", "other", "same"))
    op = SequenceMap(body=body.graph([body.node(Add(), body.node(Add(), one, other), same)]))
    g = GraphBuilder()
    y = g.node(op, "s", "t", g.input("x", "float32", [1]))
    model = with_inputs(g.model([y]), s=SequenceType(DType.FLOAT32, None), t=SequenceType(DType.FLOAT32, None))
    compiled = CORE.compile_model(model, "NUMPY")
    (got,) = compiled({"x": np.float32([10]), "s": ITEMS, "t": [-i for i in ITEMS]}).values()
    assert [list(v) for v in got] == [[10, 10], [10], [10, 10, 10]]
    with pytest.raises(OperatorError, match="same number"):
        compiled({"x": np.float32([10]), "s": ITEMS, "t": ITEMS[:1]})


def optional_model() -> Model:
    """Whether `o` is there; its relu, or x."""
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    there = g.node(OptionalHasElement(), "o")
    then = GraphBuilder("then")
    branch = then.graph([then.node(Relu(), then.node(OptionalGetElement(), "o"))])
    return with_inputs(
        g.model([there, g.node(If(then_branch=branch, else_branch=Graph((), (), (x,))), there)]),
        o=OptionalType(DType.FLOAT32, None),
    )


def test_optionals_are_there_or_not() -> None:
    compiled = CORE.compile_model(optional_model(), "NUMPY")
    x = np.float32([-1, 1])
    for given, expected in (None, x), (np.float32([-2, 2]), np.float32([0, 2])), (None, x):
        there, value = compiled({"x": x, "o": given}).values()
        assert bool(there) is (given is not None)
        np.testing.assert_array_equal(value, expected)


def test_an_absent_optional_has_no_element() -> None:
    g = GraphBuilder()
    absent = g.node(Optional(type="tensor(float)"))
    with pytest.raises(OperatorError, match="absent"):
        CORE.compile_model(g.model([g.node(OptionalGetElement(), absent)]), "NUMPY")()
    g = GraphBuilder()
    full = g.node(Optional(), g.input("x", "float32", [2]))
    compiled = CORE.compile_model(g.model([g.node(OptionalGetElement(), full)]), "NUMPY")
    np.testing.assert_array_equal(compiled(np.float32([1, 2]))[0], [1, 2])


def test_inputs_that_are_no_sequence_are_refused() -> None:
    compiled = CORE.compile_model(sequence_model(SequenceLength()), "NUMPY")
    assert compiled({"s": []})[0] == 0
    with pytest.raises(InputError, match="list of arrays"):
        compiled({"s": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match=r"'s'.*float64"):
        compiled({"s": [np.zeros(3)]})
    request = compiled.create_infer_request()
    request.start_async({"s": ITEMS})
    assert request.wait()
    assert request.results[0] == 3
