"""The base of DepthToSpace and SpaceToDepth: blocks of pixels moved into channels or out of them."""

from abc import ABC, abstractmethod

from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC


class BlockMovement(Movement, ABC):
    """Attributes and inference; in mode DCR the block is the outer part of the channel."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": BASIC}

    blocksize: int
    mode: str = "DCR"

    def __post_init__(self) -> None:
        if self.blocksize < 1:
            raise OperatorError(f"attribute 'blocksize' is {self.blocksize}; accepted: 1 or more")
        if self.mode not in ("DCR", "CRD"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: 'DCR', 'CRD'")

    def infer(self, x: TensorType) -> TensorType:
        """The input's type with the shape `target`."""
        return x.with_shape(self.target(x.dims))

    @abstractmethod
    def target(self, dims: tuple[int, ...]) -> tuple[int, int, int, int]:
        """The shape of the output. Raises `ShapeError` for a shape of the input that does not fit."""
