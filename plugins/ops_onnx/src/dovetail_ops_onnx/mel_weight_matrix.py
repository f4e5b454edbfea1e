"""MelWeightMatrix: https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html."""

import numpy as np

from dovetail.op import FLOATS, NUMERIC, DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import check_dims, known
from dovetail_ops_onnx._types import INDICES, Array

__all__ = ["MelWeightMatrix"]


class MelWeightMatrix(Operator):
    """output [dft_length // 2 + 1, num_mel_bins]: column i is a triangle with its peak, 1, at edge i + 1.

    The edges are equal steps of mel(f) = 2595 log10(1 + f / 700) from the lower to below the upper frequency, rounded down to
    bins of the spectrum.
    """

    since = 17
    inputs = ("num_mel_bins: T1", "dft_length: T1", "sample_rate: T1", "lower_edge_hertz: T2", "upper_edge_hertz: T2")
    outputs = ("output: T3",)
    types = {"T1": INDICES, "T2": FLOATS, "T3": NUMERIC}
    output_datatype: DType = DType.FLOAT32

    def infer(
        self,
        num_mel_bins: TensorType,
        dft_length: TensorType,
        sample_rate: TensorType,
        lower_edge_hertz: TensorType,
        upper_edge_hertz: TensorType,
    ) -> TensorType:
        """Number and length must be known."""
        sizes = {"num_mel_bins": num_mel_bins, "dft_length": dft_length}
        numbers = {"sample_rate": sample_rate, "lower_edge_hertz": lower_edge_hertz, "upper_edge_hertz": upper_edge_hertz}
        for name, given in (sizes | numbers).items():
            scalar(given, name)
        count, length = (int(known(given, name).reshape(())) for name, given in sizes.items())
        return TensorType(self.output_datatype, check_dims((length // 2 + 1, count), "num_mel_bins, dft_length"))

    def reference(self, num_mel_bins: Array, dft_length: Array, sample_rate: Array, lower: Array, upper: Array) -> Array:
        """Computed in float64, only where the triangles are."""
        count, length, rate = (int(a.reshape(())) for a in (num_mel_bins, dft_length, sample_rate))
        edges = _edges(count, length, rate, float(lower.reshape(())), float(upper.reshape(())))
        left, peak, right = edges[:-2], edges[1:-1], edges[2:]
        width = np.where(left <= peak, 1, 0)  # edges in falling order make no triangle
        left, right = np.minimum(left, peak - 1), np.maximum(right, peak + 1)  # where they are equal, the peak alone
        width *= right - left - 1
        column = np.repeat(np.arange(count), width)
        rise = np.arange(1, len(column) + 1) - np.repeat(np.cumsum(width) - width, width)
        row = rise + left[column]
        values = np.minimum(rise / (peak - left)[column], (right[column] - row) / (right - peak)[column])
        output = np.zeros((length // 2 + 1, count), self.output_datatype.numpy)
        output[row, column] = values.astype(output.dtype)
        return output


def _edges(count: int, length: int, rate: int, lower: float, upper: float) -> Array:
    """The bins of the edges of all triangles. Raises `OperatorError` where the frequencies are outside the spectrum."""
    if count < 0 or length < 0 or rate <= 0:
        raise OperatorError(
            f"num_mel_bins, dft_length, sample_rate are {count}, {length}, {rate}; accepted: 0 or more, 0 or more, 1 or more"
        )
    for name, hertz in (("lower_edge_hertz", lower), ("upper_edge_hertz", upper)):
        if not 0 <= (length + 1) * hertz / rate < length // 2 + 1:
            below = (length // 2 + 1) * rate / (length + 1)
            raise OperatorError(f"{name} is {hertz:g}; accepted: from 0 to below {below:g}, where the spectrum ends")
    lowest, highest = 2595 * np.log10(1 + np.array((lower, upper)) / 700)
    mels = np.arange(count + 2) * ((highest - lowest) / (count + 2)) + lowest
    edges: Array = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate).astype(np.int64)
    return edges
