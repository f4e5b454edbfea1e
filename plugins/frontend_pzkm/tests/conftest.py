"""Fixtures: .pzkm files made of a few layers, and what a model computes."""

import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.frontend import DType, Model
from dovetail_frontend_pzkm import dovetail_read_model
from dovetail_frontend_pzkm.schema import (
    Attributes,
    AttrMeta,
    Connect,
    DataType,
    Layer,
    PModel,
    Tensor,
    TensorShape,
    TensorType,
    Time,
    Weights,
)
from dovetail_frontend_pzkm.values import number_of
from dovetail_frontend_pzkm.wire import write_tables

Make = Callable[..., PModel]


def padded(shape: Sequence[int]) -> TensorShape:
    """As the format's own engine writes it: four dimensions, all of which count."""
    dims = (*shape, *(1,) * (4 - len(shape)))
    return TensorShape(len(dims), dims)


def meta(key: str, value: Any) -> AttrMeta:
    """An attribute in the type that the format's own engine uses; None and "" leave it empty."""
    if value is None or isinstance(value, str):
        text = (value or "").encode()
        return AttrMeta(key, True, DataType.CHAR, len(text), text)
    if isinstance(value, bool):
        return AttrMeta(key, True, DataType.BOOL, 1, bytes([value]))
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    is_float = any(isinstance(n, float) for n in numbers)
    stored = [n if is_float else n % 2**32 for n in numbers]
    data = struct.pack(f"<{len(stored)}{'f' if is_float else 'I'}", *stored)
    return AttrMeta(key, True, DataType.FP32 if is_float else DataType.UINT32, len(stored), data)


def layer(
    kind: str, inputs: Mapping[str, int], outputs: Sequence[int], name: str = "layer", number: int = 0, **attrs: Any
) -> Layer:
    """A layer: port -> tensor, and the attributes."""
    metas = tuple(meta(key, value) for key, value in attrs.items())
    ports = tuple(Connect(port, True, one) for port, one in inputs.items())
    made = tuple(Connect(f"output{i}" if i else "output", True, one) for i, one in enumerate(outputs))
    attributes = Attributes(f"{kind}-Attrs", len(metas), len(metas), metas)
    return Layer(number, name, kind, len(ports), len(made), ports, made, True, attributes)


def tensor(number: int, value: Any, name: str = "", layout: int = 0, pad: bool = True) -> Tensor:
    """A constant from an array; a dynamic float32 tensor from a shape, or one of another type from (dtype, shape)."""
    if isinstance(value, np.ndarray):
        shape = padded(value.shape) if pad else TensorShape(value.ndim, (*value.shape, *(1,) * (4 - value.ndim)))
        weights = Weights(value.dtype.itemsize, value.size, np.ascontiguousarray(value).tobytes())
        number_type = number_of(DType.of(value.dtype))
        assert number_type is not None
        return Tensor(number, name or f"tensor_{number}", TensorType.CONST, number_type, layout, shape, weights)
    dtype, shape = value if value and isinstance(value[0], DataType) else (DataType.FP32, value)
    stored = padded(shape) if pad else TensorShape(len(shape), (*shape, *(1,) * (4 - len(shape))))
    return Tensor(number, name or f"tensor_{number}", TensorType.DYNAMIC, dtype, layout, stored)


def model(
    tensors: Sequence[Tensor], layers: Sequence[Layer], inputs: Sequence[int], outputs: Sequence[int], **more: Any
) -> PModel:
    """The root table."""
    fields = {
        "author": "somebody",
        "create_time": Time(2024, 2, 29, 12, 30, 1),
        "version": "v1",
        "model_name": "tested",
        "model_runtime_input_num": len(inputs),
        "model_runtime_output_num": len(outputs),
        "model_runtime_input_id": tuple(inputs),
        "model_runtime_output_id": tuple(outputs),
        "all_tensor_num": len(tensors),
        "tensor_buffer": tuple(tensors),
        "layer_num": len(layers),
        "layer_buffer": tuple(layers),
    }
    return PModel(**{**fields, **more})


def one_layer(kind: str, inputs: Mapping[str, Any], output: Any, *, layout: int = 0, pad: bool = True, **attrs: Any) -> PModel:
    """A model of one layer whose inputs are arrays (constants) or shapes (inputs of the model)."""
    values = list(inputs.values())
    tensors = [tensor(i, value, list(inputs)[i], layout, pad) for i, value in enumerate(values)]
    outputs = output if isinstance(output, list) else [output]
    tensors += [tensor(len(values) + i, out, f"y{i}", layout, pad) for i, out in enumerate(outputs)]
    made = list(range(len(values), len(tensors)))
    given = [i for i, value in enumerate(values) if not isinstance(value, np.ndarray)]
    return model(tensors, [layer(kind, dict(zip(inputs, range(len(values)), strict=True)), made, **attrs)], given, made)


def read(stored: PModel | bytes, identifier: bool = True) -> Model:
    """The model of a root table, or of a file's content."""
    content = stored if isinstance(stored, bytes) else write_tables(stored, identifier)
    return dovetail_read_model(content, {})


@pytest.fixture
def run(core: dovetail.Core) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """`run(model, *arrays)`: the outputs on NUMPY."""

    def compute(stored: PModel | Model, *arrays: Any, device: str = "NUMPY") -> list[np.ndarray[Any, Any]]:
        found = stored if isinstance(stored, Model) else read(stored)
        results = core.compile_model(found, device)(list(arrays))
        return [np.asarray(results[name]) for name in found.outputs]

    return compute


def without(stored: Any, **changes: Any) -> Any:
    """A copy with some fields changed."""
    return dataclasses.replace(stored, **changes)


def network(order: Sequence[int] = (0, 1), seed: int = 3, size: int = 416) -> PModel:
    """A convolution of 4x4 without stated stride, with bias, and a pooling of 2x2: document 004's example."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((10, 3, 4, 4)).astype(np.float32)
    bias = rng.standard_normal(10).astype(np.float32)
    tensors = [
        tensor(0, (1, 3, size, size), "image"),
        tensor(1, weights, "w"),
        tensor(2, bias, "b"),
        tensor(3, (1, 10, size // 4, size // 4), "c"),
        tensor(4, (1, 10, size // 8, size // 8), "p"),
    ]
    conv = layer(
        "Convolution2dLayer",
        {"biases": 2, "weights": 1, "input": 0},
        [3],
        "conv",
        dataLayout="",
        padTop=0,
        strideX=None,
        strideY=None,
    )
    pool = layer("Pooling2dLayer", {"input": 3}, [4], "pool", 1, poolWidth=2, poolHeight=2, poolType="", strideX=2, strideY=2)
    return model(tensors, [(conv, pool)[i] for i in order], [0], [4])


@pytest.fixture(scope="session")
def files() -> Any:
    """The functions above, for tests."""
    return SimpleNamespace(
        layer=layer, meta=meta, model=model, network=network, one_layer=one_layer, read=read, tensor=tensor, without=without
    )
