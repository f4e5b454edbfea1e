"""HannWindow: https://onnx.ai/onnx/operators/onnx__HannWindow.html."""

from dovetail_ops_onnx._signal_window import SignalWindow


class HannWindow(SignalWindow):
    """0.5 - 0.5 cos(2 pi n / N) for n below `size`; N is `size` when periodic, else `size` - 1."""

    coefficients = (0.5, 0.5, 0.0)
