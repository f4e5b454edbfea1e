"""The runtimes that dovetail is compared with: onnx.reference, as it is and in float64, and onnxruntime."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from random_graphs.data import FLOATS, NAMES
from random_graphs.graph import Arrays, model_of, read, written

__all__ = ["Found", "alone", "either", "in_float32", "onnxruntime_outputs", "reference", "widened"]

Found = list[NDArray[Any]] | None
"""The outputs of a node, or None where the peer does not compute it."""

_REFUSED: set[tuple[Any, ...]] = set()
"""Operators with data types that onnxruntime has no kernel for."""

_CRASHES = ("GroupNormalization", "InstanceNormalization")
"""Operators whose kernels in onnxruntime end the process when an input has no elements."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def reference(node: NodeProto, opset: int, inputs: Arrays) -> Found:
    """The outputs by onnx.reference; None where it raises or gives other types than the standard's."""
    outputs = {name: np.zeros(0, np.float32) for name in written(node)}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model_of([node], opset, inputs, {}, outputs))
            given = evaluator.run(None, dict(inputs))
    except Exception:  # of any type: its operators raise what NumPy raises
        return None
    arrays = [np.asarray(a) for a in given]
    return arrays if all(a.dtype in NAMES.values() for a in arrays) else None


def widened(node: NodeProto, opset: int, inputs: Arrays) -> Found:
    """The outputs by onnx.reference in float64; None where the operator takes no float64, or has no float input."""
    floats = {name for name, a in inputs.items() if a.dtype in FLOATS}
    if not floats or node.op_type in ("Cast", "BitCast", "QuantizeLinear", "DynamicQuantizeLinear"):
        return None
    schema = onnx.defs.get_schema(node.op_type, opset)
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(node.input))]
    if any("tensor(double)" not in f.types for f, name in zip(formals, node.input, strict=True) if name in floats):
        return None
    return reference(node, opset, {n: a.astype(np.float64) if n in floats else a for n, a in inputs.items()})


def in_float32(node: NodeProto, opset: int, inputs: Arrays) -> Found:
    """The outputs by onnxruntime with every float input in float32: it has kernels for other types of few operators."""
    floats = {name for name, a in inputs.items() if a.dtype in FLOATS and a.dtype != np.float32}
    if not floats:
        return None
    with np.errstate(all="ignore"):
        given = {n: a.astype(np.float32) if n in floats else a for n, a in inputs.items()}
    return alone(node, opset, given)


def either(node: NodeProto, opset: int, inputs: Arrays) -> Found:
    """The outputs by onnx.reference, else by onnxruntime, of the types that ONNX infers."""
    found = reference(node, opset, inputs)
    if found is None or not _typed(node, opset, inputs, found):
        found = alone(node, opset, inputs)
    return found if found is not None and _typed(node, opset, inputs, found) else None


def _typed(node: NodeProto, opset: int, inputs: Arrays, outputs: Sequence[NDArray[Any]]) -> bool:
    """Whether the outputs have the types that the standard says: onnx.reference gives others for some operators."""
    model = model_of([node], opset, inputs, {}, {})
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_node(node, _context(opset))
    except Exception:  # InferenceError and ValidationError have no base but this
        return False
    types = {info.name: info.type.tensor_type for info in inferred.graph.value_info}
    return all(_fits(types.get(name), a) for name, a in zip(written(node), outputs, strict=True))


def _fits(declared: onnx.TypeProto.Tensor | None, array: NDArray[Any]) -> bool:
    if declared is None or not declared.elem_type:
        return True
    if declared.elem_type != helper.np_dtype_to_tensor_dtype(array.dtype):
        return False
    dims = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    return not declared.HasField("shape") or (
        len(dims) == array.ndim and all(d in (None, size) for d, size in zip(dims, array.shape, strict=True))
    )


def _context(opset: int) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.opset_imports = {"": opset}
    context.ir_version = onnx.IR_VERSION
    return context


def onnxruntime_outputs(nodes: Sequence[NodeProto], opset: int, inputs: Sequence[Arrays], types: Arrays) -> list[Found]:
    """The outputs of each node alone, on its own inputs, by one session for those that onnxruntime has kernels for.

    `types` has an array of the data type of each output.
    """
    taken = [i for i, node in enumerate(nodes) if not _is_refused(node, opset, inputs[i])]
    try:
        results = iter(_session([nodes[i] for i in taken], opset, [inputs[i] for i in taken], types))
        return [next(results) if i in taken else None for i in range(len(nodes))]
    except Exception:  # its exceptions are many, and each of them means the same
        return [alone(node, opset, given, types) for node, given in zip(nodes, inputs, strict=True)]


def alone(node: NodeProto, opset: int, inputs: Arrays, types: Arrays | None = None) -> Found:
    """The outputs by onnxruntime; None where it does not compute them."""
    if _is_refused(node, opset, inputs):
        return None
    if types is None:
        types = _inferred(node, opset, inputs)
    if types is None:
        return None
    try:
        return _session([node], opset, [inputs], types)[0]
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error) or "INVALID_GRAPH" in str(error) or type(error).__name__ == "NotImplemented":
            _REFUSED.add(_signature(node, opset, inputs))
        return None


def _inferred(node: NodeProto, opset: int, inputs: Arrays) -> Arrays | None:
    try:
        inferred = onnx.shape_inference.infer_shapes(model_of([node], opset, inputs, {}, {}))
    except Exception:
        return None
    types = {info.name: info.type.tensor_type.elem_type for info in inferred.graph.value_info}
    if not all(types.get(name) for name in written(node)):
        return None
    return {name: np.zeros(0, helper.tensor_dtype_to_np_dtype(types[name])) for name in written(node)}


def _is_refused(node: NodeProto, opset: int, inputs: Arrays) -> bool:
    crashes = node.op_type in _CRASHES and any(a.size == 0 for a in inputs.values())
    return crashes or _signature(node, opset, inputs) in _REFUSED


def _signature(node: NodeProto, opset: int, inputs: Arrays) -> tuple[Any, ...]:
    return node.op_type, opset, tuple(inputs[name].dtype.name if name else "" for name in node.input)


def _session(nodes: Sequence[NodeProto], opset: int, inputs: Sequence[Arrays], types: Arrays) -> list[Found]:
    """Run nodes side by side; every input is a constant, because the Python interface takes no bfloat16."""
    constants: dict[str, NDArray[Any]] = {}
    apart: list[NodeProto] = []
    outputs: dict[str, NDArray[Any]] = {}
    for i, (node, given) in enumerate(zip(nodes, inputs, strict=True)):
        copied = onnx.NodeProto.FromString(node.SerializeToString())
        copied.input[:] = [f"{i}/{name}" if name else "" for name in node.input]
        apart.append(copied)
        constants.update({f"{i}/{name}": given[name] for name in read(node)})
        for name in written(node):
            outputs[_readable(name, types, apart)] = types[name]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    declared = {name: np.zeros(0, np.float32) if name.endswith("/wide") else a for name, a in outputs.items()}
    model = model_of(apart, opset, {}, constants, declared)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(list(outputs), {})
    flat = iter(a.astype(t.dtype) if t.dtype == _BFLOAT16 else a for a, t in zip(results, outputs.values(), strict=True))
    return [[next(flat) for _ in written(node)] for node in nodes]


def _readable(name: str, types: Mapping[str, NDArray[Any]], nodes: list[NodeProto]) -> str:
    """The name under which an output can be read: NumPy interfaces of onnxruntime give no bfloat16."""
    if types[name].dtype != _BFLOAT16:
        return name
    nodes.append(helper.make_node("Cast", [name], [f"{name}/wide"], to=TensorProto.FLOAT))
    return f"{name}/wide"
