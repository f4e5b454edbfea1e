"""Models in int8, by onnxruntime's own tool and calibrated on seeded random images, and in float16."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _common import MODELS, Arrays, ModelSpec

IMAGES = 4
"""So many images calibrate the ranges of activations."""


def _static(spec: ModelSpec, path: Path, layout: str) -> None:
    """uint8 activations, int8 weights with a scale for each output channel; batch norm is folded before."""
    tool: Any = import_module("onnxruntime.quantization")
    prepare: Any = import_module("onnxruntime.quantization.shape_inference").quant_pre_process

    class Images(tool.CalibrationDataReader):
        def __init__(self) -> None:
            self._left: Iterator[Arrays] = (_calibrating(spec, seed) for seed in range(IMAGES))

        def get_next(self) -> Arrays | None:
            return next(self._left, None)

    # In the operator format Add and the like would become operators of onnxruntime's own domain.
    only = {"op_types_to_quantize": ["Conv", "MatMul"]} if layout == "QOperator" else {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        prepare(str(spec.path), str(prepared), skip_symbolic_shape=True)
        tool.quantize_static(
            str(prepared),
            str(path),
            Images(),
            quant_format=tool.QuantFormat[layout],
            per_channel=True,
            activation_type=tool.QuantType.QUInt8,
            weight_type=tool.QuantType.QInt8,
            **only,
        )


def _calibrating(spec: ModelSpec, seed: int) -> Arrays:
    """Inputs without padding, whose masks would make scores of -1e9 and more and leave no steps for the others."""
    inputs = spec.inputs(np.random.default_rng(seed), 1)
    return {name: np.ones_like(array) if name == "attention_mask" else array for name, array in inputs.items()}


def _dynamic(spec: ModelSpec, path: Path) -> None:
    """int8 weights; activations are quantized to uint8 while the model runs, over the range that they have."""
    tool: Any = import_module("onnxruntime.quantization")
    tool.quantize_dynamic(str(spec.path), str(path), weight_type=tool.QuantType.QInt8)


def _halves(spec: ModelSpec, path: Path) -> None:
    """The whole model in float16: weights, inputs, outputs, and conversions to float32."""
    onnx: Any = import_module("onnx")
    tools, kinds = onnx.numpy_helper, onnx.TensorProto
    model = onnx.load(spec.path)
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    tensors = [*model.graph.initializer, *(a.t for a in attributes if a.type == onnx.AttributeProto.TENSOR)]
    for tensor in tensors:
        if tensor.data_type == kinds.FLOAT:
            tensor.CopyFrom(tools.from_array(tools.to_array(tensor).clip(-65504, 65504).astype(np.float16), tensor.name))
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == kinds.FLOAT:
            attribute.i = kinds.FLOAT16
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == kinds.FLOAT:
            value.type.tensor_type.elem_type = kinds.FLOAT16
    onnx.save(model, path)


RECIPES: dict[str, Callable[[Path], None]] = {
    "resnet50_qdq": lambda path: _static(MODELS["resnet50"], path, "QDQ"),
    "resnet50_qoperator": lambda path: _static(MODELS["resnet50"], path, "QOperator"),
    "mobilenet_v2_qdq": lambda path: _static(MODELS["mobilenet_v2"], path, "QDQ"),
    "minilm_qdq": lambda path: _static(MODELS["minilm"], path, "QDQ"),
    "minilm_dynamic": lambda path: _dynamic(MODELS["minilm"], path),
    "mobilenet_v2_f16": lambda path: _halves(MODELS["mobilenet_v2"], path),
    "minilm_f16": lambda path: _halves(MODELS["minilm"], path),
}


def quantize(name: str, folder: Path) -> Path:
    """Write the quantized model `name` to `folder`; the float32 model must have been exported. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    logging.disable(logging.WARNING)  # the tool recommends the preparation that was just made
    try:
        RECIPES[name](path)
    finally:
        logging.disable(logging.NOTSET)
    return path
