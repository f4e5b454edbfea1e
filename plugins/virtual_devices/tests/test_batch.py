"""BATCH: rows of several requests as one batch; each comes back to its request, and a bad one fails alone."""

import copy
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faulty import Faulty, fails_at

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import InferError, OperatorError, UsageError
from dovetail.graph import DType, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.cum_sum import CumSum
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.softmax import Softmax
from dovetail_virtual_devices.batch import BatchModel
from dovetail_virtual_devices.options import BatchOptions

LONG = {"AUTO_BATCH_TIMEOUT": 20_000}
WEIGHTS = np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32)


def product(batch: int | str | None = "N") -> Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(MatMul(), g.input("x", "float32", [batch, 3]), g.constant(WEIGHTS))])


def nothing(node: Any) -> bool:
    return False


def together(compiled: Any, inputs: list[Any]) -> list[Any]:
    """The results of requests in threads of their own; an error stands in for a result."""
    found: list[Any] = [None] * len(inputs)

    def run(index: int) -> None:
        try:
            found[index] = compiled.create_infer_request().infer(inputs[index])[0]
        except dovetail.DovetailError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("batch", ["N", 1, None])
def test_rows_run_together_and_come_back_to_their_requests(toy_core: Any, batch: int | str | None) -> None:
    core, opened = toy_core(A=Faulty)
    compiled = core.compile_model(product(batch), "BATCH:A(6)", LONG)
    assert (compiled.device, compiled.devices) == ("BATCH:A.0(6)", ("A.0",))
    assert compiled.optimal_number_of_infer_requests == 6
    before = opened["A.0"].runs
    rows = [np.random.default_rng(i).standard_normal((1, 3)).astype(np.float32) for i in range(12)]
    for got, row in zip(together(compiled, rows), rows, strict=True):
        np.testing.assert_allclose(got, row.astype(np.float64) @ WEIGHTS, rtol=1e-5)
        assert got.base is None
    assert opened["A.0"].runs - before == 2
    assert compiled.report().notes == ("12 rows in 2 batches",)


def test_a_batch_that_does_not_fill_runs_when_the_time_is_over(toy_core: Any) -> None:
    core, _ = toy_core(A=Faulty)
    compiled = core.compile_model(product(), "BATCH:A(64)", {"AUTO_BATCH_TIMEOUT": 1})
    x = np.ones((3, 3), np.float32)
    np.testing.assert_allclose(compiled(x)[0], x @ WEIGHTS, rtol=1e-5)
    assert 3 not in [dims[0] for (dims,) in compiled.plans], "three rows run as four"
    assert compiled(x)[0].shape == (3, 5)


class Provisional(Faulty):
    """All executables but the first one are provisional, unless they are made afresh; `made_as` tells which were."""

    is_fresh = False

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.made_as: list[bool] = []

    def afresh(self) -> "Provisional":
        found = copy.copy(self)
        found.is_fresh = True
        return found

    def compile(self, graph: Any, options: Any) -> Any:
        executable = super().compile(graph, options)
        executable.provisional = not self.is_fresh and bool(self.made_as)
        self.made_as.append(executable.provisional)
        return executable


def test_batches_that_are_compiled_ahead_have_final_plans(toy_core: Any) -> None:
    core, opened = toy_core(A=Provisional)
    compiled = core.compile_model(product(), "BATCH:A(4)", LONG)
    assert sorted(dims[0] for (dims,) in compiled.plans) == [1, 2, 4]
    assert opened["A.0"].made_as == [False, True, False, True, False]


def test_batches_of_all_sizes_are_compiled_and_bound_ahead(toy_core: Any) -> None:
    core, opened = toy_core(A=Faulty)
    compiled = core.compile_model(product(), "BATCH:A(6)", {"AUTO_BATCH_TIMEOUT": 0, "NUM_STREAMS": 2})
    device = opened["A.0"]
    assert sorted(dims[0] for (dims,) in compiled.plans) == [1, 2, 4, 6]
    assert device.made == 8, "of each size one for each of two streams"
    for rows in (1, 3, 5, 2, 6, 1, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_allclose(compiled(x)[0], x.astype(np.float64) @ WEIGHTS, rtol=1e-5)
    assert device.made == 8
    compiled.close()
    assert device.alive == 0


def test_sizes_that_the_user_lists(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    compiled = core.compile_model(product(), "BATCH:A(8)", {"AUTO_BATCH_TIMEOUT": 0, "AUTO_BATCH_SIZES": [3]})
    for rows in (1, 3, 4, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_allclose(compiled(x)[0], x.astype(np.float64) @ WEIGHTS, rtol=1e-5)
    assert sorted(dims[0] for (dims,) in compiled.plans) == [3, 8]


def test_a_group_waits_no_longer_than_others_come(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    composite = BatchModel(product(), core.compile_model(product(), "A"), (1, 8), BatchOptions(AUTO_BATCH_TIMEOUT=60_000))

    class Gathering:
        """A lock during whose first two waits requests come."""

        waits = 0

        def acquire(self, timeout: float) -> bool:
            assert 0 < timeout < 60
            self.waits += 1
            if self.waits < 3:
                group.tickets.append(object())
            return False

    group: Any = SimpleNamespace(tickets=[object()], gathering=Gathering())
    composite._gather(group)
    assert group.gathering.waits == 3


def test_reproducible_batches_are_all_of_one_size(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    compiled = core.compile_model(product(), "BATCH:A(8)", {"AUTO_BATCH_TIMEOUT": 0, "REPRODUCIBLE": True})
    for rows in (1, 3, 8):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(compiled(x)[0], x @ WEIGHTS, rtol=1e-5)
    assert [dims[0] for (dims,) in compiled.plans] == [8], "one is compiled"


def test_requests_of_several_rows_and_those_that_are_a_batch_by_themselves(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    compiled = core.compile_model(product(), "BATCH:A(4)", {"AUTO_BATCH_TIMEOUT": 1})
    for rows in (0, 4, 9):
        x = np.full((rows, 3), rows, np.float32)
        np.testing.assert_allclose(compiled(x)[0], x @ WEIGHTS, rtol=1e-5)
    inputs = [np.random.default_rng(i).standard_normal((1 + i % 3, 3)).astype(np.float32) for i in range(11)]
    for got, x in zip(together(compiled, inputs), inputs, strict=True):
        np.testing.assert_allclose(got, x.astype(np.float64) @ WEIGHTS, rtol=1e-5)


def test_requests_of_other_shapes_make_other_batches(toy_core: Any) -> None:
    core, opened = toy_core(A=Faulty)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", ["N", "S"]))])
    compiled = core.compile_model(model, "BATCH:A(2)", LONG)
    compiled(np.zeros((1, 1), np.float32))  # whether rows are independent is checked once
    before = opened["A.0"].runs
    inputs = [np.full((1, 1 + i % 2), i - 1, np.float32) for i in range(4)]
    for got, x in zip(together(compiled, inputs), inputs, strict=True):
        np.testing.assert_array_equal(got, np.maximum(x, 0))
    assert opened["A.0"].runs - before == 2


def lookup() -> Model:
    """Row of a table for each index."""
    g = dovetail.GraphBuilder()
    return g.model([g.node(Gather(), g.constant(np.arange(4, dtype=np.float32)), g.input("i", "int64", ["N"]))])


def test_inputs_with_different_numbers_of_rows_run_by_themselves(toy_core: Any) -> None:
    core, _ = toy_core(A=Faulty)
    g = dovetail.GraphBuilder()
    outputs = [g.node(Relu(), g.input(name, "float32", [symbol, 2])) for name, symbol in (("x", "N"), ("y", "M"))]
    compiled = core.compile_model(g.model(outputs), "BATCH:A(4)", {"AUTO_BATCH_TIMEOUT": 1})
    for rows in ((1, 3), (3, 1), (2, 2), (0, 2)):
        given = [np.random.default_rng(count).standard_normal((count, 2)).astype(np.float32) for count in rows]
        for found, array in zip(compiled(given).values(), given, strict=True):
            np.testing.assert_array_equal(found, np.maximum(array, 0))


def test_a_bad_row_fails_alone(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    compiled = core.compile_model(lookup(), "BATCH:A(4)", LONG)
    inputs = [np.array([i]) for i in (1, 7, 3, 2)]
    found = together(compiled, inputs)
    assert isinstance(found[1], OperatorError)
    assert [got.tolist() for i, got in enumerate(found) if i != 1] == [[1.0], [3.0], [2.0]]


def test_when_the_device_fails_every_request_gets_an_error_that_names_it(toy_core: Any) -> None:
    core, _ = toy_core(A=fails_at(RuntimeError, 5))  # four runs prepare it
    compiled = core.compile_model(product(), "BATCH:A(2)", LONG)
    found = together(compiled, [np.ones((1, 3), np.float32)] * 2)
    assert [type(error) for error in found] == [InferError] * 2
    assert ["A.0: run() raised RuntimeError: the queue died" in str(error) for error in found] == [True, True]


def test_over_multi(toy_core: Any) -> None:
    core, opened = toy_core(A=fails_at(RuntimeError, 12), B=Faulty)
    compiled = core.compile_model(product(), "BATCH:MULTI:A,B(4)", LONG)
    assert compiled.device == "BATCH:MULTI:A.0,B.0(4)"
    assert compiled.optimal_number_of_infer_requests == 8
    rows = [np.random.default_rng(i).standard_normal((1, 3)).astype(np.float32) for i in range(24)]
    for got, row in zip(together(compiled, rows), rows, strict=True):
        np.testing.assert_allclose(got, row.astype(np.float64) @ WEIGHTS, rtol=1e-5)
    assert opened["A.0"].runs + opened["B.0"].runs >= 8


# --- models whose rows are not rows --------------------------------------------------------------------------------------


def mixing(build: Any) -> Model:
    g = dovetail.GraphBuilder()
    return g.model([build(g, g.input("x", "float32", ["N", 3]))])


def number_of_rows(g: Any, x: str) -> Any:
    return g.node(Cast(to=DType.FLOAT32), g.node(Shape(start=0, end=1), x))


def numbered(g: Any, x: str) -> Any:
    """Each row plus its number."""
    numbers = g.node(CumSum(exclusive=True), g.node(Expand(), g.constant(np.float32([[1]])), g.node(Shape(), x)), g.constant(0))
    return g.node(Add(), x, numbers)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (mixing(lambda g, x: g.node(Div(), x, number_of_rows(g, x))), "depends on how many rows there are, or on their places"),
        (mixing(numbered), "depends on how many rows there are, or on their places"),
        (mixing(lambda g, x: g.node(Softmax(axis=0), x, name="s")), "output 's:0' mixes rows: the first one changes"),
        (mixing(lambda g, x: g.node(Add(), x, g.node(ReduceSum(), x, g.constant([0])))), "mixes rows"),
        (mixing(lambda g, x: g.node(Reshape(), x, g.constant([-1]))), "is float32[12] for 4 rows"),
        (mixing(lambda g, x: g.node(ReduceSum(keepdims=0), x)), "is float32[] for 4 rows"),
        (product(2), "input 'x' is float32[2, 3]; accepted: a first dimension that is a symbol or 1"),
    ],
)
def test_models_whose_rows_depend_on_each_other_run_request_by_request(
    toy_core: Any, model: Model, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=nothing)
    compiled = core.compile_model(model, "BATCH:A(4)", LONG)
    assert "run one by one" in caplog.text
    assert message in caplog.text
    x = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
    want = core.compile_model(model, "A")(x)[0]
    for got in together(compiled, [x] * 3):
        np.testing.assert_array_equal(got, want)
    (note,) = compiled.report().notes
    assert message in note


def test_rows_are_checked_at_the_first_request_where_other_dimensions_are_open(
    toy_core: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A quantization with one scale for the whole batch gives a row other results beside other rows."""
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", "length"])
    quantized, scale, zero = g.node(DynamicQuantizeLinear(), x, outputs=["quantized", "scale", "zero"])
    compiled = core.compile_model(g.model([g.node(DequantizeLinear(), quantized, scale, zero)]), "BATCH:A(4)", LONG)
    assert "run one by one" not in caplog.text
    rows = [np.float32([[factor, -factor / 3, factor / 7]]) for factor in (1, 100, 10_000, 0.01)]
    for got, row in zip(together(compiled, rows), rows, strict=True):
        np.testing.assert_allclose(got, row, atol=np.ptp(row) / 255)
    assert "mixes rows: the first one changes" in caplog.text
    assert caplog.text.count("run one by one") == 1
    assert "mixes rows" in compiled.report({"x": [1, 3]}).notes[0]


def test_the_number_of_rows_is_checked_at_the_first_request_where_other_dimensions_are_open(
    toy_core: Any, caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", "length"])
    compiled = core.compile_model(g.model([g.node(Div(), x, number_of_rows(g, x))]), "BATCH:A(4)", LONG)
    for got in together(compiled, [np.array([[1, 2]], np.float32)] * 3):
        np.testing.assert_array_equal(got, [[1, 2]])
    assert "depends on how many rows there are" in compiled.report({"x": [1, 2]}).notes[0]


def test_a_first_request_that_fails_says_nothing_about_rows(toy_core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Add(), g.input("a", "float32", ["N", "X"]), g.input("b", "float32", ["N", "Y"]))])
    compiled = core.compile_model(model, "BATCH:A(2)", LONG)
    with pytest.raises(dovetail.DovetailError):
        compiled({"a": np.ones((1, 2), np.float32), "b": np.ones((1, 3), np.float32)})
    inputs = [{"a": np.float32([[i, 2]]), "b": np.float32([[3, i]])} for i in range(2)]
    for i, got in enumerate(together(compiled, inputs)):
        np.testing.assert_array_equal(got, [[i + 3, i + 2]])
    assert "one by one" not in caplog.text
    assert "2 rows in 1 batches" in compiled.report({"a": [2, 2], "b": [2, 2]}).notes[0]


def test_a_batch_of_one_that_is_written_into_the_model_runs_request_by_request(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Reshape(), g.input("x", "float32", [1, 3]), g.constant([3, 1]))])
    compiled = core.compile_model(model, "BATCH:A(4)", LONG)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(compiled(x)[0], x.reshape(3, 1))
    assert compiled.report().notes[0].startswith("one by one: ")


@pytest.mark.parametrize(
    ("device", "properties", "message"),
    [
        ("BATCH:A(x)", {}, "'BATCH:A(x)' names no device and size"),
        ("BATCH", {}, "'BATCH:' names no device and size"),
        ("BATCH:A(0)", {}, "'BATCH:A(0)' names no device and size"),
        ("BATCH:A(4)", {"AUTO_BATCH_TIMEOUT": -1}, "property AUTO_BATCH_TIMEOUT of BATCH is -1; accepted: milliseconds"),
        ("BATCH:A(4)", {"AUTO_BATCH_TIMEOUT": "soon"}, "property AUTO_BATCH_TIMEOUT of BATCH is 'soon'"),
        (
            "BATCH:A(4)",
            {"AUTO_BATCH_SIZES": [2, 5]},
            "property AUTO_BATCH_SIZES of BATCH is [2, 5]; accepted: numbers of rows up to 4",
        ),
        (
            "BATCH:A(4)",
            {"AUTO_BATCH_SIZES": [0]},
            "property AUTO_BATCH_SIZES of BATCH is [0]; accepted: a list of positive whole numbers",
        ),
        (
            "BATCH:A(4)",
            {"AUTO_BATCH_SIZES": 2},
            "property AUTO_BATCH_SIZES of BATCH is 2; accepted: a list of positive whole numbers",
        ),
    ],
)
def test_what_makes_no_sense(toy_core: Any, device: str, properties: Any, message: str) -> None:
    core, _ = toy_core(A=nothing)
    with pytest.raises(UsageError) as caught:
        core.compile_model(product(), device, properties)
    assert message in str(caught.value)


def test_under_many_threads_every_row_is_answered_once(toy_core: Any) -> None:
    before = threading.active_count()
    core, opened = toy_core(A=fails_at(RuntimeError, 20, every=9))
    compiled = core.compile_model(product(), "BATCH:A(8)", {"AUTO_BATCH_TIMEOUT": 1, "NUM_STREAMS": 2})
    answers: list[list[Any]] = [[] for _ in range(16)]

    def call(caller: int) -> None:
        request = compiled.create_infer_request()
        for index in range(40):
            x = np.full((1 + index % 2, 3), caller * 100 + index, np.float32)
            try:
                answers[caller].append((x, request.infer(x)[0]))
            except dovetail.DovetailError as error:
                answers[caller].append((x, error))

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [len(found) for found in answers] == [40] * 16
    for found in answers:
        for x, answer in found:
            if isinstance(answer, Exception):
                assert "A.0: run() raised RuntimeError: the queue died" in str(answer)
            else:
                np.testing.assert_allclose(answer, x.astype(np.float64) @ WEIGHTS, rtol=1e-5)
    compiled.close()
    assert opened["A.0"].alive == 0
    assert threading.active_count() <= before  # those of tests before may have ended meanwhile
