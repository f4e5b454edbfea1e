"""FlowWarp: a picture moved along an optical flow, as in networks for video interpolation and super-resolution."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, OpenCLKernel, Operator, OperatorError, ShapeError, TensorType, Translation
from dovetail.testing import Case

OUTSIDE = ("zeros", "edge")


def _defines(op: Operator, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> dict[str, int]:
    _, c, h, w = outputs[0].dims
    return {"C": c, "H": h, "W": w, "EDGE": int(getattr(op, "outside", "") == "edge")}


def _of_the_exporter(theirs: Mapping[str, Any]) -> Mapping[str, Any]:
    """`border`, a number in their models, is our `outside`."""
    border = theirs.get("border", 0)
    if border not in range(len(OUTSIDE)):
        raise OperatorError(f"border is {border!r}; accepted: 0 for zeros, 1 for edge")
    return {"outside": OUTSIDE[border]}


class FlowWarp(Operator):
    """Y[n, c, y, x] = X[n, c] at (x + flow[n, 0, y, x], y + flow[n, 1, y, x]), bilinear between pixels; flows in pixels.

    `outside` says what surrounds the picture: `zeros`, or `edge`, the nearest pixel inside. A flow that is NaN points
    outside, to the right or below. Computed in float32 (float64 for float64) and rounded once.
    """

    domain = "com.example.vision"
    inputs = ("X: T", "flow: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (
        OpenCLKernel(
            source=OpenCLKernel.text_of(__package__, "flow_warp.cl"),
            entry={"float32": "flow_warp"},
            defines=_defines,
            global_size=("X", "Y", "B*F"),
            origin="vision_ops/flow_warp.cl",
        ),
    )

    translations = (
        Translation(domain="com.example.exporter", op_type="GridWarp", attributes=_of_the_exporter, inputs=(1, 0)),
        Translation(domain="extension", op_type="FlowWarp", attributes={"padding": "outside"}),
    )

    outside: str = "zeros"

    def __post_init__(self) -> None:
        if self.outside not in OUTSIDE:
            raise OperatorError(f"outside is {self.outside!r}; accepted: {', '.join(OUTSIDE)}")

    def infer(self, X: TensorType, flow: TensorType) -> TensorType:
        """Y has the type of X. Raises `ShapeError` unless X is [N, C, H, W] and the flow [N, 2, H, W]."""
        if X.rank != 4:
            raise ShapeError(f"X is {X}; accepted: [N, C, H, W]")
        n, _, h, w = X.dims
        if flow.dims != (n, 2, h, w):
            raise ShapeError(f"flow is {flow}; accepted: {[n, 2, h, w]} for X {X}")
        return X.with_shape(X.shape)

    def reference(self, X: NDArray[Any], flow: NDArray[Any]) -> NDArray[Any]:
        """Each of the four pixels around the place, times its share."""
        wide = np.result_type(X.dtype, np.float32)
        x0, fx = _whole_and_rest(np.arange(X.shape[3], dtype=wide) + flow[:, 0].astype(wide), X.shape[3])
        y0, fy = _whole_and_rest(np.arange(X.shape[2], dtype=wide)[:, None] + flow[:, 1].astype(wide), X.shape[2])
        total = np.zeros(X.shape, wide)
        for dy, share_y in ((0, 1 - fy), (1, fy)):
            for dx, share_x in ((0, 1 - fx), (1, fx)):
                total += self._pixels(X, y0 + dy, x0 + dx).astype(wide) * (share_y * share_x)[:, None]
        return total.astype(X.dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        """Every pixel of the picture times its share, which is 0 for all but four, in float64."""
        for outside in OUTSIDE:
            for n, c, h, w in ((2, 3, 5, 7), (1, 2, 1, 4), (1, 1, 1, 1), (0, 2, 3, 4), (2, 0, 3, 4)):
                X = rng.normal(size=(n, c, h, w)).astype(np.float32)
                flow = rng.uniform(-4, 4, (n, 2, h, w)).astype(np.float32)
                y = _by_shares(X, flow.astype(np.float64), outside).astype(np.float32)
                yield Case(f"{outside}_{n}x{c}x{h}x{w}", cls(outside=outside), (X, flow), (y,), atol=1e-5)

    def _pixels(self, X: NDArray[Any], y: NDArray[np.intp], x: NDArray[np.intp]) -> NDArray[Any]:
        """X[n, :, y[n], x[n]] for each place, [N, C, H, W]."""
        n, _, h, w = X.shape
        found = X[np.arange(n)[:, None, None], :, np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)]
        if self.outside == "zeros":
            inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
            found = np.where(inside[..., None], found, np.zeros((), X.dtype))
        return np.moveaxis(found, -1, 1)


def _whole_and_rest(place: NDArray[Any], size: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Pixel index and the fraction to the next one; one pixel outside is as far as any, NaN included."""
    bounded = np.fmax(np.fmin(place, place.dtype.type(size)), place.dtype.type(-1))
    whole = np.floor(bounded)
    return whole.astype(np.intp), bounded - whole


def _by_shares(X: NDArray[Any], flow: NDArray[np.float64], outside: str) -> NDArray[np.float64]:
    x, y = np.arange(X.shape[3]), np.arange(X.shape[2])
    at_x, at_y = x + flow[:, 0], y[:, None] + flow[:, 1]
    if outside == "edge":
        at_x, at_y = np.clip(at_x, 0, len(x) - 1), np.clip(at_y, 0, len(y) - 1)
    share_x, share_y = (np.maximum(0, 1 - np.abs(at[..., None] - whole)) for at, whole in ((at_x, x), (at_y, y)))
    return np.asarray(np.einsum("ncij,nyxi,nyxj->ncyx", X, share_y, share_x))
