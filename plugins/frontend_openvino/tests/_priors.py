"""Graphs of prior boxes, whose grid and picture are inputs of known shapes; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset8
from openvino.utils.node_factory import NodeFactory

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, c = (_GRAPHS[name] for name in ("Operation", "f", "c"))

SIZES = np.int64([3, 5]), np.int64([48, 70])
BOXES: dict[str, dict[str, Any]] = {
    "plain": {"min_size": [16.0], "aspect_ratio": [2.0], "flip": True, "variance": [0.1, 0.1, 0.2, 0.2]},
    "step": {"min_size": [16.0, 30.0], "max_size": [40.0, 50.0], "aspect_ratio": [2.0, 3.0, 2.0], "step": 13.0, "offset": 0.3},
    "clip": {"min_size": [60.0], "max_size": [90.0], "aspect_ratio": [1.0, 0.5], "clip": True, "variance": [0.3]},
    "dense": {"fixed_size": [32.0, 20.0], "density": [2.0, 3.0], "step": 8.0, "aspect_ratio": [2.0]},
    "dense ratios": {"fixed_size": [32.0, 20.0], "density": [2.0, 1.0], "fixed_ratio": [4.0]},
}


def _by_attributes() -> Iterable[Any]:
    for name, given in BOXES.items():
        attributes = {"offset": 0.5, "step": 0.0, "clip": False, "flip": False, **given}
        yield Operation(f"priors {name}", lambda a, b, k=attributes: opset8.prior_box(a, b, {**k}), SIZES)
    # OpenVINO's CPU plugin folds these; it has no kernel for them.
    sizes, ordered = [c(size) for size in SIZES], {**BOXES["step"], "min_max_aspect_ratios_order": False}
    yield Operation("priors ordered", lambda x: opset1.add(opset8.prior_box(*sizes, ordered), x), (f(2, 1),))
    older = {"offset": 0.5, **BOXES["plain"]}
    yield Operation("priors 1", lambda x: opset1.add(NodeFactory("opset1").create("PriorBox", sizes, older), x), (f(2, 1),))
    for name, given in {
        "": {},
        "step": {"step": 9.0, "clip": True, "variance": [0.1, 0.1, 0.2, 0.2]},
        "steps": {"step_widths": 9.0, "step_heights": 7.0},
    }.items():
        yield Operation(
            f"clusters {name}".strip(),
            lambda a, b, k=given: opset1.prior_box_clustered(
                a, b, {"width": [8.0, 30.5], "height": [40.0, 7.0], "offset": 0.4, **k}
            ),
            SIZES,
        )


FAMILIES = (_by_attributes,)
