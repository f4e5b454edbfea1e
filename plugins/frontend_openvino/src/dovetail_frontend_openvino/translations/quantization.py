"""FakeQuantize: rounds to levels and back, in floating point."""

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _fake_quantize(call: Call) -> str:
    x, input_low, input_high, output_low, output_high = (call.name(i) for i in range(5))
    if call.choice_attr("auto_broadcast", {"numpy": "", "none": "", "pdpd": "pdpd"}, "numpy"):
        raise FormatError("auto_broadcast is pdpd", hint="accepted: numpy, none")
    steps = call.int_attr("levels") - 1
    if steps < 1:
        raise FormatError(f"levels is {steps + 1}", hint="accepted: 2 or more")
    low, high = call.op("Min", input_low, input_high), call.op("Max", input_low, input_high)
    clipped = call.op("Min", call.op("Max", x, low), high)
    scale = call.op("Div", call.like(steps, 0), call.op("Sub", input_high, input_low))
    level = call.op("Round", call.op("Mul", call.op("Sub", clipped, input_low), scale))
    step = call.op("Div", call.op("Sub", output_high, output_low), call.like(steps, 0))
    return call.op("Add", call.op("Mul", level, step), output_low)


TABLE: Table = {"FakeQuantize": _fake_quantize}
