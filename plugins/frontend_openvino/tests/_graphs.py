"""Building blocks for graphs of operations: an operation with its inputs, random arrays, constants."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13

RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Operation:
    """`build` makes the nodes that are results from the parameters; `feeds` are the inputs."""

    name: str
    build: Callable[..., Any]
    feeds: tuple[Any, ...]
    open: bool = False
    reference: bool = False  # compared with openvino's own evaluation, because its CPU plugin refuses or deviates

    def model(self) -> ov.Model:
        """The graph; with `open`, all dimensions of the inputs are."""
        parameters = []
        for index, feed in enumerate(self.feeds):
            shape = ov.PartialShape([-1] * feed.ndim) if self.open else ov.PartialShape(feed.shape)
            parameters.append(opset13.parameter(shape, feed.dtype, name=f"in{index}"))
        built = self.build(*parameters)
        nodes = built if isinstance(built, list) else [built]
        outputs = [out for node in nodes for out in (node.outputs() if hasattr(node, "outputs") else [node])]
        return ov.Model([opset13.result(out) for out in outputs], parameters, self.name)


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Random float32."""
    return RNG.uniform(low, high, shape).astype(np.float32)


def i(*shape: int, low: int = -5, high: int = 6, dtype: Any = np.int32) -> Any:
    """Random integers."""
    return RNG.integers(low, high, shape).astype(dtype)


def c(value: Any, dtype: Any = np.int64) -> Any:
    """A constant."""
    return opset13.constant(np.array(value, dtype))


def b(*shape: int) -> Any:
    """Random bools."""
    return RNG.integers(0, 2, shape).astype(bool)
