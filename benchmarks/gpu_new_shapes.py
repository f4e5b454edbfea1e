"""First runs with other batches and lengths on a GPU, and the runs until the plans for these are final.

    python benchmarks/gpu_new_shapes.py [-d OPENCL.0] [--only minilm] [--hint f16] [--json]

One request runs the shapes of each model in turn. `first` is the first run with a shape in milliseconds, in which `programs`
were built. Then the request runs until it has the final plan, after so many `seconds`, for which so many `more` programs were
built: `median`, `p99` and `longest` of the runs meanwhile. `final` is the median of the runs after that. Binaries that earlier
processes left in dovetail's cache count as none: begin with `XDG_CACHE_HOME=$(mktemp -d)`, and `CUDA_CACHE_PATH` likewise.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from _common import MODELS, MODELS_DIR, QUANTIZED, Row, emit, median, milliseconds, parser

SHAPES: dict[str, Sequence[tuple[int, ...]]] = {
    "mobilenet_v2": ((1,), (2,), (5,), (8,), (32,)),
    "resnet50": ((1,), (2,), (8,), (32,)),
    "minilm": ((1, 16), (2, 16), (1, 128), (8, 128), (32, 128)),
    "resnet50_qdq": ((1,), (2,), (8,), (32,)),
    "minilm_dynamic": ((1, 16), (2, 16), (1, 128), (8, 128), (32, 128)),
}
LONGEST = 60.0
"""Seconds that a final plan is waited for."""


def _counting() -> list[Any]:
    """The programs of all contexts, as they are opened."""
    from dovetail_gpu_opencl.program import Programs

    opened: list[Any] = []
    inner = Programs.__init__

    def opening(self: Any, *given: Any) -> None:
        inner(self, *given)
        opened.append(self)

    Programs.__init__ = opening  # type: ignore[method-assign]
    return opened


def rows_of(name: str, device: str, hint: str, opened: Sequence[Any]) -> list[Row]:
    """A row for each shape of a model, in turn."""
    import dovetail

    spec, core = (MODELS | QUANTIZED)[name], dovetail.Core()
    model = core.compile_model(core.read_model(str(spec.path)), device, {"INFERENCE_PRECISION_HINT": hint})
    request, rows = model.create_infer_request(), []

    def built() -> int:
        return sum(programs.builds for programs in opened)

    for shape in SHAPES[name]:
        inputs, before = spec.inputs(np.random.default_rng(0), *shape), built()
        run = partial(request.infer, inputs)
        first, during, meanwhile = milliseconds(run), built() - before, [milliseconds(run)]
        started, ended = time.perf_counter(), 0.0
        while request._bound.plan.better is not None and ended < LONGEST:  # type: ignore[union-attr]
            meanwhile.append(milliseconds(run))
            ended = time.perf_counter() - started
        final = median([milliseconds(run) for _ in range(200)])
        more, late = built() - before - during, {"p99": float(np.percentile(meanwhile, 99)), "longest": max(meanwhile)}
        found = {"first": first, "programs": during, "median": median(meanwhile), **late, "seconds": ended, "more": more}
        rows.append({"model": name, "shape": " x ".join(map(str, shape)), **found, "final": final})
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0")
    options.add_argument("--only", help="models whose name begins so")
    options.add_argument("--hint", default="f32", help="INFERENCE_PRECISION_HINT")
    arguments = options.parse_args()
    opened = _counting()
    asked = [name for name in SHAPES if name.startswith(arguments.only or "")]
    names = [name for name in asked if (MODELS_DIR / f"{name}.onnx").exists()]
    for name in sorted(set(asked) - set(names)):
        print(f"{name} is left out: `python benchmarks/models.py quantize` makes it", file=sys.stderr)
    emit(arguments.json, [row for name in names for row in rows_of(name, arguments.device, arguments.hint, opened)], {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
