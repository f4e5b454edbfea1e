"""BlackmanWindow: https://onnx.ai/onnx/operators/onnx__BlackmanWindow.html."""

from dovetail_ops_onnx._signal_window import SignalWindow


class BlackmanWindow(SignalWindow):
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N) for n below `size`; N is `size` when periodic, else `size` - 1."""

    coefficients = (0.42, 0.5, 0.08)
