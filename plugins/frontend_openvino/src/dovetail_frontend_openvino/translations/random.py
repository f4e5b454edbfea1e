"""Random numbers. With a seed other than 0 they are the same at every run, but not those of OpenVINO's generator."""

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _seed(call: Call) -> dict[str, float]:
    seed = call.int_attr("op_seed", 0) or call.int_attr("global_seed", 0)
    return {"seed": float(seed)} if seed else {}


def _random_uniform(call: Call) -> str:
    """Numbers from min, included, to max, not included. Integers are drawn in float64."""
    dtype = call.type_attr("output_type")
    drawn = dtype if dtype.is_float else DType.FLOAT64
    shape = call.op("ConstantOfShape", call.index_list(0))
    unit = call.op("RandomUniformLike", shape, dtype=drawn.onnx, **_seed(call))
    low, high = (_one(call, index, drawn) for index in (1, 2))
    found = call.op("Add", call.op("Mul", unit, call.op("Sub", high, low)), low)
    return found if drawn is dtype else call.cast(call.op("Floor", found), dtype)


def _one(call: Call, index: int, dtype: DType) -> str:
    """A bound, as a scalar: it may be a list of one."""
    name = call.name(index) if call.value(index).dtype is dtype else call.cast(call.name(index), dtype)
    return call.op("Reshape", name, call.const(np.zeros(0, np.int64)))


def _multinomial(call: Call) -> str:
    if not call.bool_attr("with_replacement"):
        raise FormatError("the attribute 'with_replacement' is false", hint="accepted: true, each sample of all classes")
    dtype = call.type_attr("convert_type")
    logarithms = call.name(0) if call.bool_attr("log_probs") else call.op("Log", call.name(0))
    count = call.integer(1, "num_samples")
    return call.op("Multinomial", logarithms, sample_size=count, dtype=dtype.onnx, **_seed(call))


TABLE: Table = {"RandomUniform": _random_uniform, "Multinomial": _multinomial}
