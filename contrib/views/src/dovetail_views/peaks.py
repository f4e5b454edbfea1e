"""The peak rates of a device, measured with a large product and a large sum."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np

import dovetail
from dovetail.errors import DovetailError
from dovetail.graph import GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mat_mul import MatMul

__all__ = ["peaks_of"]

_SIDE = 1024
_ELEMENTS = 1 << 23
_RUNS = 5


def peaks_of(devices: Iterable[str]) -> Mapping[str, tuple[float, float]]:
    """Device -> FLOPs and bytes in a second, in float32; devices that cannot be measured are left out."""
    found = {}
    for device in devices:
        try:
            found[device] = _peaks(device)
        except DovetailError:
            continue
    return found


@cache
def _peaks(device: str) -> tuple[float, float]:
    product = _fastest(device, _product()) / 1e9
    total = _fastest(device, _sum()) / 1e9
    return 2 * _SIDE**3 / product, 3 * 4 * _ELEMENTS / total


def _product() -> Model:
    g = GraphBuilder()
    b = g.constant(np.ones((_SIDE, _SIDE), np.float32))
    return g.model([g.node(MatMul(), g.input("a", "float32", (_SIDE, _SIDE)), b)])


def _sum() -> Model:
    g = GraphBuilder()
    shape = (_ELEMENTS,)
    return g.model([g.node(Add(), g.input("a", "float32", shape), g.input("b", "float32", shape))])


def _fastest(device: str, model: Model) -> int:
    """Nanoseconds of all kernels: the fastest of several runs."""
    with dovetail.Core().compile_model(model, device) as compiled:
        feeds = {name: np.ones(t.dims, np.float32) for name, t in model.inputs.items()}
        slices = compiled.create_infer_request().trace(feeds, runs=_RUNS).slices
    runs: Counter[int] = Counter()
    for one in slices:
        if one.kind == "kernel":
            runs[one.run] += one.end - one.start
    return min(runs.values())
