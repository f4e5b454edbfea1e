"""FakeQuantize and FakeConvert: round to levels, or to floats of few bits, and back."""

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _fake_quantize(call: Call) -> str:
    x, input_low, input_high, output_low, output_high = (call.name(i) for i in range(5))
    if call.choice_attr("auto_broadcast", {"numpy": "", "none": "", "pdpd": "pdpd"}, "numpy"):
        raise FormatError("auto_broadcast is pdpd", hint="accepted: numpy, none")
    steps = call.int_attr("levels") - 1
    if steps < 1:
        raise FormatError(f"levels is {steps + 1}", hint="accepted: 2 or more")
    clipped = _clipped(call, x)
    scale = call.op("Div", call.like(steps, 0), call.op("Sub", input_high, input_low))
    level = call.op("Round", call.op("Mul", call.op("Sub", clipped, input_low), scale))
    step = call.op("Div", call.op("Sub", output_high, output_low), call.like(steps, 0))
    return call.op("Add", call.op("Mul", level, step), output_low)


def _clipped(call: Call, x: str) -> str:
    """x between the limits. Clip, which devices fuse with what computes x, takes single numbers only."""
    given, shape = [known for index in (1, 2) if (known := call.known(index)) is not None], call.value(0).shape
    if shape is not None and len(given) == 2 and all(one.size == 1 and one.ndim <= len(shape) for one in given):
        ends = sorted(one.item() for one in given)
        return call.op("Clip", x, *(call.like(end, 0) for end in ends))
    limits = call.name(1), call.name(2)
    return call.op("Min", call.op("Max", x, call.op("Min", *limits)), call.op("Max", *limits))


def _fake_convert(call: Call) -> str:
    """Rounds to float16, as OpenVINO does, then to a float of 8 bits, and back."""
    kinds = {"f8e4m3": DType.FLOAT8_E4M3FN, "f8e5m2": DType.FLOAT8_E5M2}
    kind = kinds[call.choice_attr("destination_type", {name: name for name in kinds})]
    x = call.op("Mul", call.name(0), call.name(1))
    half = call.cast(call.op("Sub", x, call.name(2)) if call.has(2) else x, DType.FLOAT16)
    rounded = call.op("Cast", half, to=kind.onnx, saturate=1)
    back = call.cast(rounded, call.dtype(0))
    return call.op("Div", call.op("Add", back, call.name(2)) if call.has(2) else back, call.name(1))


TABLE: Table = {"FakeQuantize": _fake_quantize, "FakeConvert": _fake_convert}
