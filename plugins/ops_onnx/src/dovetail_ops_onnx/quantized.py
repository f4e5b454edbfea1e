"""Float operators between quantized values, as one operator: what a graph of DequantizeLinear and QuantizeLinear means."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.locks import cached_property
from dovetail.op import AbstractOperator, DType, GraphBuilder, Port, TensorType, evaluate_composition
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["PREVIOUS", "Quantized", "QuantizedStep", "Scaling"]

PREVIOUS = -1
"""In `QuantizedStep.inputs`: the result of the step before."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Linear quantization: real = (stored - zero_point) * scale; stored = saturate(round(real / scale) + zero_point).

    `scale` (float32) and `zero_point` (of the stored type) have one element, or one for each place along `axis`.
    """

    scale: NDArray[Any]
    zero_point: NDArray[Any]
    axis: int = 1

    @property
    def dtype(self) -> DType:
        """The stored type."""
        return DType.of(self.zero_point.dtype)

    @property
    def is_single(self) -> bool:
        """True when one scale and one zero point hold for the whole tensor."""
        return self.scale.size == self.zero_point.size == 1

    @cached_property
    def numbers(self) -> tuple[float, float]:
        """The scale and the zero point where they are single."""
        return float(self.scale.reshape(())), float(self.zero_point.reshape(()))

    @property
    def is_usual(self) -> bool:
        """True when all scales are from 2^-40 to 2^40, and those of channels from 2^-100, as kernels expect.

        Real numbers then have the order of the stored ones, so that maxima and ReLU work on either, and quotients of two scales
        are normal float32 numbers. Tools write the least scales, or 0, for channels without weights.
        """
        least = 2.0**-40 if self.is_single else 2.0**-100
        return bool(((self.scale >= least) & (self.scale <= 2.0**40)).all())

    def equals(self, other: "Scaling") -> bool:
        """Whether the same stored numbers mean the same."""
        pairs = ((self.scale, other.scale), (self.zero_point, other.zero_point))
        return self.dtype is other.dtype and all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs)


@dataclass(frozen=True)
class QuantizedStep:
    """A float operator; `inputs` are indices of the whole operator's inputs, `PREVIOUS`, or None for what is left out."""

    op: AbstractOperator
    inputs: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Quantized(AbstractOperator):
    """Inputs dequantized by their `scalings` (None: they are real numbers), then `steps` in order, then stored by `result`.

    A step that is a `Scaling` rounds the value so far to what that quantization can hold. Without `result` the output is float32.
    Only a graph pass makes this operator, where a device has a kernel for it.
    """

    domain = "dovetail"
    stem = "quantized"
    inputs = (Port("inputs", variadic=True),)
    outputs = (Port("Y"),)
    steps: tuple[QuantizedStep | Scaling, ...]
    scalings: tuple[Scaling | None, ...]
    result: Scaling | None

    @property
    def op_type(self) -> str:
        """`QuantizedConv` for a chain that begins with Conv."""
        return f"Quantized{self.main.op_type}"

    @property
    def main(self) -> AbstractOperator:
        """The operator of the first step."""
        first = self.steps[0]
        assert isinstance(first, QuantizedStep)
        return first.op

    @property
    def chain(self) -> tuple[str, ...]:
        """The name in reports of the steps after the first: `requantize` for a rounding in between, `quantize` for the last."""
        names = ["requantize" if isinstance(step, Scaling) else step.op.stem for step in self.steps[1:]]
        return (*names, *(["quantize"] if self.result is not None else []))

    def infer(self, *inputs: TensorType) -> TensorType:
        given = [t if s is None else t.with_dtype(DType.FLOAT32) for t, s in zip(inputs, self.scalings, strict=True)]
        value = given[0]
        for step in self.steps:
            if isinstance(step, QuantizedStep):
                found = step.op.infer(*(None if i is None else value if i == PREVIOUS else given[i] for i in step.inputs))
                value = found[0] if isinstance(found, tuple) else found
        return value if self.result is None else value.with_dtype(self.result.dtype)

    def compose(self, g: GraphBuilder, *inputs: str) -> str:
        real = [name if s is None else _dequantized(g, name, s) for name, s in zip(inputs, self.scalings, strict=True)]
        value = ""
        for step in self.steps:
            if isinstance(step, Scaling):
                value = _dequantized(g, _quantized(g, value, step), step)
            else:
                value = g.node(step.op, *("" if i is None else value if i == PREVIOUS else real[i] for i in step.inputs))
        return value if self.result is None else _quantized(g, value, self.result)

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The composition by the references of its operators."""
        return evaluate_composition(self, inputs)

    @classmethod
    def has_reference(cls) -> bool:
        """False: devices run kernels of theirs or the composition."""
        return False

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        step = self.steps[0]
        assert isinstance(step, QuantizedStep)
        return self.main.flops([None if i is None else inputs[i] for i in step.inputs], outputs)


def _dequantized(g: GraphBuilder, name: str, scaling: Scaling) -> str:
    found: str = g.node(DequantizeLinear(axis=scaling.axis), name, g.constant(scaling.scale), g.constant(scaling.zero_point))
    return found


def _quantized(g: GraphBuilder, name: str, scaling: Scaling) -> str:
    found: str = g.node(QuantizeLinear(axis=scaling.axis), name, g.constant(scaling.scale), g.constant(scaling.zero_point))
    return found
