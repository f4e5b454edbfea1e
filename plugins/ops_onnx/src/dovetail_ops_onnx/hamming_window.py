"""HammingWindow: https://onnx.ai/onnx/operators/onnx__HammingWindow.html."""

from dovetail_ops_onnx._signal_window import SignalWindow


class HammingWindow(SignalWindow):
    """25/46 - 21/46 cos(2 pi n / N) for n below `size`; N is `size` when periodic, else `size` - 1."""

    coefficients = (25 / 46, 1 - 25 / 46, 0.0)
