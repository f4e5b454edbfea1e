"""Arrays of other libraries: inputs by DLPack and by the buffer protocol, outputs by DLPack."""

import array
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail_ops_onnx.relu import Relu

X = np.array([[-1, 0.5, 2]], np.float32)


class Exporter:
    """An array of another library that knows DLPack, and nothing of NumPy."""

    def __init__(self, values: Any, device: int = 1, copies: bool = True) -> None:
        self.values, self.device, self.copies = values, device, copies
        self.dtype = "of another library"
        self.calls: list[Any] = []

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("ask for my memory")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **how: Any) -> Any:
        self.calls.append(how)
        if self.device != 1 and not (self.copies and how.get("dl_device") == (1, 0)):
            raise BufferError("this memory belongs to a GPU")
        return self.values.__dlpack__()


@pytest.fixture
def compiled(toy_core: Any) -> Any:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    return core.compile_model(g.model([g.node(Relu(), g.input("x", "float32", ["N", 3]))]), "A")


def test_memory_that_is_exported_is_read_where_it_is(compiled: Any) -> None:
    exported = Exporter(X)
    (read,), _ = compiled.reader.read([exported])
    assert np.shares_memory(read, X)
    np.testing.assert_array_equal(compiled({"x": exported})[0], np.maximum(X, 0))
    np.testing.assert_array_equal(X, [[-1, 0.5, 2]])


def test_strided_memory_is_copied_in_order(compiled: Any) -> None:
    given = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2] - 3
    np.testing.assert_array_equal(compiled(Exporter(given))[0], np.maximum(given, 0))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 asks for no copy from another device")
def test_memory_of_a_gpu_is_copied_where_the_library_can(compiled: Any) -> None:
    exported = Exporter(X, device=2)
    np.testing.assert_array_equal(compiled(exported)[0], np.maximum(X, 0))
    assert exported.calls[-1]["dl_device"] == (1, 0)


def test_memory_of_a_gpu_that_cannot_be_copied_is_named(compiled: Any) -> None:
    with pytest.raises(InputError) as caught:
        compiled(Exporter(X, device=2, copies=False))
    assert "input 'x' is a Exporter that exports no memory of the CPU" in str(caught.value)
    assert ".cpu()" in str(caught.value)


def test_types_and_shapes_are_checked_as_ever(compiled: Any) -> None:
    with pytest.raises(InputError, match=r"input 'x' is float64\[1, 3\]; accepted: float32"):
        compiled(Exporter(X.astype(np.float64)))
    with pytest.raises(InputError, match="dimension 1 is 4"):
        compiled(Exporter(np.zeros((1, 4), np.float32)))


def test_the_buffer_protocol(compiled: Any) -> None:
    memory = memoryview(X)
    (read,), _ = compiled.reader.read({"x": memory})
    assert np.shares_memory(read, X)
    np.testing.assert_array_equal(compiled(memory)[0], np.maximum(X, 0))
    plain = array.array("f", [-1, 0.5, 2])
    np.testing.assert_array_equal(compiled(memoryview(plain).cast("B").cast("f", [1, 3]))[0], np.maximum(X, 0))


def test_results_are_exported_and_may_be_written(compiled: Any) -> None:
    result = compiled(X)[0]
    taken = np.from_dlpack(result)
    assert np.shares_memory(taken, result)
    assert result.flags.writeable
    np.testing.assert_array_equal(compiled(Exporter(result))[0], np.maximum(X, 0))


if find_spec("torch"):  # CI does without it; `Exporter` has the same protocol

    def test_tensors_of_pytorch(compiled: Any) -> None:
        import torch

        given = torch.from_numpy(X.copy())
        np.testing.assert_array_equal(compiled(given)[0], np.maximum(X, 0))
        np.testing.assert_array_equal(torch.from_dlpack(compiled(given)[0]).numpy(), np.maximum(X, 0))
        with pytest.raises(InputError, match="exports no memory of the CPU"):
            compiled(given.requires_grad_())
