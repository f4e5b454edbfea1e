"""FrameBlend: a picture between two others, as in networks for video interpolation; several operators in one."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.op import FLOATS, GraphBuilder, Operator, OperatorError, ShapeError, TensorType, Translation
from dovetail.testing import Case
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mul import Mul
from vision_ops.flow_warp import FlowWarp


class FrameBlend(Operator):
    """Y = (1 - share) * warped(first, flow) + share * second, where warped is `FlowWarp`.

    It has no reference: the sub-graph that `compose` builds defines it, in models of every format that has the operator.
    """

    domain = "com.example.vision"
    inputs = ("first: T", "second: T", "flow: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    translations = (
        Translation(domain="com.example.exporter", op_type="Blend", attributes={"alpha": "share"}),
        Translation(domain="extension", op_type="FrameBlend", attributes={"padding": "outside"}),
    )

    share: float = 0.5
    outside: str = "edge"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise OperatorError(f"share is {self.share}; accepted: 0 to 1")

    def infer(self, first: TensorType, second: TensorType, flow: TensorType) -> TensorType:
        """The type of the pictures. Raises `ShapeError` for pictures of different sizes, and as `FlowWarp`."""
        if first.dims != second.dims:
            raise ShapeError(f"first is {first}, second {second}; accepted: two pictures of one size")
        return FlowWarp(outside=self.outside).infer(first, flow)

    def compose(self, g: GraphBuilder, first: str, second: str, flow: str) -> Any:
        """FlowWarp, two Mul, Add."""
        moved = g.node(FlowWarp(outside=self.outside), first, flow)
        known = g.type_of(first)
        assert known is not None
        parts = [g.node(Mul(), x, g.constant(share, known.dtype)) for x, share in ((moved, 1 - self.share), (second, self.share))]
        return g.node(Add(), *parts)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        """Flows of whole pixels, which only move the picture."""
        for share, steps in ((0.5, 1), (0.25, -2), (1.0, 0)):
            first, second = rng.normal(size=(2, 2, 3, 4, 5)).astype(np.float32)
            flow = np.zeros((2, 2, 4, 5), np.float32)
            flow[:, 0] = steps
            moved = first[..., np.clip(np.arange(5) + steps, 0, 4)]
            y = (1 - share) * moved.astype(np.float64) + share * second
            yield Case(f"{share}_{steps}", cls(share=share), (first, second, flow), (y.astype(np.float32),), atol=1e-6)
