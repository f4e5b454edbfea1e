"""QuantLSTMCell: a recurrent layer whose every value is quantized. https://github.com/Xilinx/brevitas (`nn/quant_rnn.py`)"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, ShapeError, TensorType
from dovetail_ops_qonnx._base import BITS, QonnxOperator, limits
from dovetail_ops_qonnx._rounding import check_rounding, rounded_array

__all__ = ["QuantLSTMCell"]

Array = NDArray[Any]

_QUANTIZERS: tuple[str, ...] = ("output", "cell_state", "input_acc", "forget_acc", "cell_acc", "output_acc", "input_sigmoid")
_QUANTIZERS += ("forget_sigmoid", "cell_tanh", "output_sigmoid", "hidden_state_tanh")
"""In the order of their inputs."""
_TENSORS = ("input", "hidden_state", "cell_state", *(f"weight_{side}{gate}" for side in "ih" for gate in "ifco"))
_TENSORS += tuple(f"bias_{gate}" for gate in ("input", "forget", "cell", "output"))
_NUMBERS = (("scale", "T"), ("zero_point", "T"), ("bit_width", "B"))


class QuantLSTMCell(QonnxOperator):
    """An LSTM whose gates, activations and states are quantized: outputs, last hidden state and last cell state.

    Input [length, batch, size], or with `batch_first` [batch, length, size]; states [batch, hidden]; weights [hidden, size] and
    [hidden, hidden]; biases [hidden] or one number. Sums of gates are quantized (`_acc`), so are their sigmoids and tanh, both
    products for the cell and their sum (`cell_state`), and outputs. With `cifg` the forget gate is 1, quantized, less the input
    gate. `reverse_input` begins with the last step; outputs are in the order of the inputs. Each quantizer has three inputs and
    three attributes, as `Quant` has, whose formula it computes.
    """

    inputs = (
        *(f"quant_{name}: T" for name in _TENSORS),
        *(f"{name}_{part}: {kind}" for name in _QUANTIZERS for part, kind in _NUMBERS),
    )
    outputs = ("quant_outputs: T", "quant_hidden_state_out: T", "quant_cell_state_out: T")
    types = {"T": FLOATS, "B": BITS}

    batch_first: bool = False
    reverse_input: bool = False
    cifg: bool = False
    output_narrow: bool = False
    output_signed: bool = True
    output_rounding_mode: str = "ROUND"
    cell_state_narrow: bool = False
    cell_state_signed: bool = True
    cell_state_rounding_mode: str = "ROUND"
    input_acc_narrow: bool = False
    input_acc_signed: bool = True
    input_acc_rounding_mode: str = "ROUND"
    forget_acc_narrow: bool = False
    forget_acc_signed: bool = True
    forget_acc_rounding_mode: str = "ROUND"
    cell_acc_narrow: bool = False
    cell_acc_signed: bool = True
    cell_acc_rounding_mode: str = "ROUND"
    output_acc_narrow: bool = False
    output_acc_signed: bool = True
    output_acc_rounding_mode: str = "ROUND"
    input_sigmoid_narrow: bool = False
    input_sigmoid_signed: bool = False
    input_sigmoid_rounding_mode: str = "ROUND"
    forget_sigmoid_narrow: bool = False
    forget_sigmoid_signed: bool = False
    forget_sigmoid_rounding_mode: str = "ROUND"
    cell_tanh_narrow: bool = False
    cell_tanh_signed: bool = True
    cell_tanh_rounding_mode: str = "ROUND"
    output_sigmoid_narrow_range: bool = False
    output_sigmoid_signed: bool = False
    output_sigmoid_rounding_mode: str = "ROUND"
    hidden_state_tanh_narrow: bool = False
    hidden_state_tanh_signed: bool = True
    hidden_state_tanh_rounding_mode: str = "ROUND"

    def __post_init__(self) -> None:
        for name in _QUANTIZERS:
            check_rounding(getattr(self, f"{name}_rounding_mode"))

    def infer(self, *inputs: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        """A row of the hidden state for each step, and the types of both states."""
        x, hidden, cell, *weights = inputs[: len(_TENSORS)]
        if x.rank != 3 or hidden.rank != 2 or hidden.dims != cell.dims or hidden.dims[0] != x.dims[int(not self.batch_first)]:
            raise ShapeError(f"inputs are {x}, {hidden} and {cell}; accepted: a sequence [.., .., size], states [batch, hidden]")
        size = hidden.dims[1]
        wanted = [(size, x.dims[2])] * 4 + [(size, size)] * 4 + [(size,)] * 4
        for name, given, dims in zip(_TENSORS[3:], weights, wanted, strict=True):
            if given.dims != dims and not (given.size == 1 and len(dims) == 1):
                raise ShapeError(f"input 'quant_{name}' is {given}; accepted: shape {list(dims)}")
        return x.with_shape((*x.dims[:2], size)), hidden.with_shape(hidden.dims), cell.with_shape(cell.dims)

    def reference(self, *inputs: Array) -> tuple[Array, Array, Array]:
        """Step by step, all four gates of the input for all steps at once."""
        x, hidden, cell, *rest = inputs
        weights, biases, numbers = rest[:8], rest[8:12], rest[12:]
        quantize = {name: self._quantizer(name, *numbers[3 * at : 3 * at + 3]) for at, name in enumerate(_QUANTIZERS)}
        steps = np.swapaxes(x, 0, 1) if self.batch_first else x
        found = np.empty((*steps.shape[:2], hidden.shape[1]), x.dtype)
        own = [steps @ weight.T for weight in weights[:4]]
        order = range(len(steps))[:: -1 if self.reverse_input else 1]
        names = ("input", "forget", "cell", "output")
        with np.errstate(all="ignore"):
            for step in order:
                sums = zip(names, own, weights[4:], biases, strict=True)
                gates = {name: quantize[f"{name}_acc"](x[step] + hidden @ w.T + b) for name, x, w, b in sums}
                hidden, cell = self._stepped(gates, cell, quantize)
                found[step] = hidden
        return np.swapaxes(found, 0, 1) if self.batch_first else found, hidden, cell

    def _stepped(
        self, gates: dict[str, Array], cell: Array, quantize: dict[str, Callable[[Array], Array]]
    ) -> tuple[Array, Array]:
        """The states after a step."""
        taken = quantize["input_sigmoid"](_sigmoid(gates["input"]))
        if self.cifg:
            kept = quantize["input_sigmoid"](np.ones_like(taken)) - taken
        else:
            kept = quantize["forget_sigmoid"](_sigmoid(gates["forget"]))
        new = taken * quantize["cell_tanh"](np.tanh(gates["cell"]))
        cell = quantize["cell_state"](quantize["cell_state"](kept * cell) + quantize["cell_state"](new))
        shown = quantize["output_sigmoid"](_sigmoid(gates["output"]))
        return quantize["output"](shown * quantize["hidden_state_tanh"](np.tanh(cell))), cell

    def _quantizer(self, name: str, scale: Array, zero: Array, bits: Array) -> Callable[[Array], Array]:
        narrow = getattr(self, f"{name}_narrow_range" if name == "output_sigmoid" else f"{name}_narrow")
        low, high = limits(float(bits.item()), signed=getattr(self, f"{name}_signed"), narrow=narrow)
        mode = getattr(self, f"{name}_rounding_mode")
        return lambda x: (rounded_array(np.clip(x / scale + zero, low, high), mode) - zero) * scale


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)
