"""Shared by tests of products of bytes: quantizations by their formulas, exact sums, and runs with channels innermost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import NHWC, Graph
from dovetail_ops_onnx.quantized import Scaling

Array = NDArray[Any]


def scaling(scale: Any, zero: Any, dtype: Any, axis: int = 1) -> Scaling:
    scales = np.asarray(scale, np.float32)
    return Scaling(scales, np.broadcast_to(np.asarray(zero, dtype), scales.shape), axis)


def stored(real: Array, to: Scaling) -> Array:
    """The formula of QuantizeLinear in the precision of `real`."""
    limits = np.iinfo(to.dtype.numpy)
    whole = np.rint(real / to.scale.astype(real.dtype)) + to.zero_point.astype(real.dtype)
    return np.clip(whole, limits.min, limits.max).astype(to.dtype.numpy)


def numbers(rng: Any, dtype: Any, *dims: int) -> Array:
    """All numbers of a type but the least, so that those of int8 fit with a zero point of 1."""
    limits = np.iinfo(dtype)
    found: Array = rng.integers(limits.min + 1, limits.max, dims, dtype, endpoint=True)
    return found


def sums_of(x: Array, w: Array, case: Sequence[Any]) -> NDArray[np.int64]:
    """The convolution in int64, window by window; zeros outside."""
    *_, stride, dilation, pads = case
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    extent = dilation * (w.shape[2] - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(wide, (extent, extent), (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64))


def innermost(a: Array) -> Array:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape)


def laid_out(graph: Graph, images: Sequence[str]) -> Graph:
    """The graph with channels innermost in these values."""
    return graph.replace(types={n: t.with_layout(NHWC) if n in images else t for n, t in graph.types.items()})


def run_images(device: Any, bench: Any, graph: Graph, feeds: Sequence[Array], source: Any) -> Array:
    """The result of a node whose result has its channels innermost, and whose first input has this layout."""
    images = {n for n, t in graph.types.items() if t.dims == graph.types["y0"].dims and n != "x0"} | {"y0"}
    images |= {"x0"} if source == NHWC else set()
    fed = list(graph.inputs)
    given = [innermost(a) if n in images else a for n, a in zip(fed, feeds, strict=True)]
    (got,) = bench.run(device, laid_out(graph, sorted(images)), given, DEBUG_BUFFERS=True)
    found: Array = got.reshape(got.shape[0], *got.shape[2:], got.shape[1]).transpose(0, 3, 1, 2)
    return found
