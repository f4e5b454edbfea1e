"""Inputs that do not fit the model are refused by name; those that are only stored strangely give the right result."""

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dovetail.errors import DovetailError, InputError

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = A[::-1].copy() * 0.5
EXPECTED = A - np.maximum(B, 1)


@pytest.fixture
def compiled(core: Any, build: Any) -> Any:
    """y = a - max(b, 1) for a and b of float32[N, 3]."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "ab"]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    nodes = [helper.make_node("Max", ["b", "one"], ["m"]), helper.make_node("Sub", ["a", "m"], ["y"])]
    return core.compile_model(core.read_model(build(nodes, infos, ["y"], [one]).SerializeToString(), format="onnx"), "NUMPY")


REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "missing": ({"a": A}, ("'b'", "is missing")),
    "extra": ({"a": A, "b": B, "c": A}, ("no input 'c'",)),
    "misspelled": ({"a": A, "B": B}, ("no input 'B'", "Did you mean 'b'?")),
    "nothing": ({}, ("'a'", "is missing")),
    "too few in order": ([A], ("takes 2 inputs", "got 1")),
    "too many in order": ([A, B, A], ("takes 2 inputs", "got 3")),
    "float64": ({"a": A, "b": B.astype(np.float64)}, ("'b'", "float64[2, 3]", "float32[N, 3]")),
    "int32": ({"a": A, "b": B.astype(np.int32)}, ("'b'", "int32[2, 3]", "float32[N, 3]")),
    "complex": ({"a": A, "b": B + 1j}, ("'b'", "complex", "float32[N, 3]")),
    "strings": ({"a": A, "b": np.array([["x", "y", "z"]] * 2)}, ("'b'", "float32[N, 3]")),
    "objects": ({"a": A, "b": np.array([[None] * 3] * 2)}, ("'b'", "object", "float32[N, 3]")),
    "rank": ({"a": A, "b": B[0]}, ("'b'", "rank 1", "float32[N, 3]")),
    "scalar": ({"a": A, "b": 1.0}, ("'b'", "rank 0", "float32[N, 3]")),
    "dimension": ({"a": A[:, :2], "b": B}, ("'a'", "dimension 1 is 2", "float32[N, 3]")),
    "None": ({"a": A, "b": None}, ("'b'", "None", "float32[N, 3]")),
    "ragged list": ({"a": A, "b": [[1, 2, 3], [1, 2]]}, ("'b'", "list", "float32[N, 3]")),
    "text": ({"a": A, "b": "picture.png"}, ("'b'", "'picture.png' (str)", "float32[N, 3]")),
    "dict": ({"a": A, "b": {"x": 1}}, ("'b'", "dict", "float32[N, 3]")),
    "a long string": ({"a": A, "b": "x" * 10**6}, ("'b'", "float32[N, 3]")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(compiled: Any, name: str) -> None:
    inputs, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        compiled(inputs)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 1000
    np.testing.assert_array_equal(compiled({"a": A, "b": B})["y"], EXPECTED)


def test_symbols_that_differ_are_warned_of_once(compiled: Any, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(compiled({"a": A, "b": B[:1]})["y"], A - np.maximum(B[:1], 1))
    (record,) = (r for r in caplog.records if "dimension 0" in r.getMessage())
    assert "input 'b': dimension 0 (N) is 1, but N is 2 in input 'a'" in record.getMessage()


@pytest.mark.parametrize("name", ["?", "None", "unknown"])
def test_names_that_say_nothing_are_not_warned_of(core: Any, build: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    infos = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [name, 3]) for value in "ab"]
    model = build([helper.make_node("Sub", ["a", "b"], ["y"])], infos, ["y"])
    compiled = core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    np.testing.assert_array_equal(compiled({"a": A, "b": B[:1]})["y"], A - B[:1])
    assert not caplog.records


def _unaligned(array: Any) -> Any:
    storage = np.zeros(array.nbytes + 1, np.uint8)
    view = storage[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


def _read_only(array: Any) -> Any:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


STORED = {
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
    "strided": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "negative stride": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda array: np.broadcast_to(array, (1, *array.shape))[0],
    "read-only": _read_only,
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "unaligned": _unaligned,
    "list": lambda array: array.tolist(),
    "matrix of a subclass": lambda array: array.view(np.matrix),
}


@pytest.mark.parametrize("name", STORED)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_stored_strangely(compiled: Any, name: str) -> None:
    a, b = STORED[name](A), STORED[name](B)
    before = [np.array(a), np.array(b)]
    np.testing.assert_array_equal(compiled({"a": a, "b": b})["y"], EXPECTED)
    np.testing.assert_array_equal(compiled([a, b])["y"], EXPECTED)
    np.testing.assert_array_equal(np.array(a), before[0])
    np.testing.assert_array_equal(np.array(b), before[1])


def test_an_input_that_changes_later_does_not_change_the_result(compiled: Any) -> None:
    a = A.copy()
    result = compiled({"a": a, "b": B})
    a[...] = 0
    np.testing.assert_array_equal(result["y"], EXPECTED)


def test_batch_zero(compiled: Any) -> None:
    assert compiled({"a": A[:0], "b": B[:0]})["y"].shape == (0, 3)


def test_run_after_close(compiled: Any) -> None:
    request = compiled.create_infer_request()
    compiled.close()
    for run in (lambda: compiled({"a": A, "b": B}), lambda: request.infer({"a": A, "b": B}), compiled.create_infer_request):
        with pytest.raises(DovetailError, match="closed"):
            run()


def test_the_same_request_started_twice(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request, held = compiled.create_infer_request(), threading.Event()
    run = request._run
    monkeypatch.setattr(request, "_run", lambda *arguments, **options: held.wait(600) and run(*arguments, **options))
    request.start_async({"a": A, "b": B})
    try:
        with pytest.raises(DovetailError, match="the request is running"):
            request.start_async({"a": A, "b": B})
    finally:
        held.set()
    request.wait()
    np.testing.assert_array_equal(request.results["y"], EXPECTED)
    request.start_async({"a": A, "b": B})
    request.wait()
    np.testing.assert_array_equal(request.results["y"], EXPECTED)


def test_sixteen_threads_on_one_model(compiled: Any) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(50):
                a, b = rng.standard_normal((2, int(rng.integers(1, 4)), 3)).astype(np.float32)
                np.testing.assert_array_equal(compiled({"a": a, "b": b})["y"], a - np.maximum(b, 1))
        except BaseException as error:  # carried to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
