"""Half precision on a GPU: dovetail's OPENCL device with the hint f16 against `torch.compile(mode="reduce-overhead")` in float16.

`python benchmarks/gpu_compiled.py [--only MODEL] [--batch N] [--precision bf16]` times both from NumPy to NumPy, transfers
included, in turns. With `f32` arrays dovetail runs the float32 model with the hint; PyTorch's module is converted to float16 with
channels last, and casts on the GPU. With `f16` arrays both take and return halves, and dovetail runs the converted model. With
`--precision bf16` bfloat16 takes the place of float16 in all of this. `x` is dovetail's median over PyTorch's, `relative`
dovetail's largest error against PyTorch in float32 on the GPU, of the largest output.

`--start FILE` waits, once everything is compiled, for that file to appear, and then locks it while it times, so that processes
for several models compile at the same time and are timed one after the other. Export the models first:
`python benchmarks/models.py export`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import MODELS, Arrays, Row, emit, error_figures, geometric_mean, interleaved, median, parser
from _runners import Dovetail
from ml_dtypes import bfloat16
from models import DEFINITIONS, as_half, halves
from torch import nn

PRECISIONS = {"f16": np.dtype(np.float16), "bf16": np.dtype(bfloat16)}


class Compiled:
    """A module in float16 or bfloat16 on CUDA, compiled, from NumPy to NumPy."""

    def __init__(self, module: nn.Module, precision: str) -> None:
        self._numpy, self._dtype = PRECISIONS[precision], torch.float16 if precision == "f16" else torch.bfloat16
        lowered = module.to(self._dtype).cuda().to(memory_format=torch.channels_last)
        self._module: Any = torch.compile(lowered, mode="reduce-overhead")

    def run(self, inputs: Arrays, *, half: bool) -> Any:
        given = [self._placed(value) for value in inputs.values()]
        result = self._module(*given)
        # NumPy has no bfloat16 that PyTorch knows: its bits are passed.
        return result.view(torch.int16).cpu().numpy().view(self._numpy) if half else result.float().cpu().numpy()

    def _placed(self, array: Any) -> Any:
        if array.dtype == self._numpy:
            placed = torch.from_numpy(array.view(np.int16)).cuda().view(self._dtype)
        else:
            placed = torch.from_numpy(array).cuda()
        if placed.is_floating_point():
            placed = placed.to(self._dtype)
        return placed.contiguous(memory_format=torch.channels_last) if placed.ndim == 4 else placed


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Waits for the file, and holds its lock; nothing without a path."""
    if not path:
        yield
        return
    print("compiled", file=sys.stderr, flush=True)
    while not Path(path).exists():
        time.sleep(0.2)
    with Path(path).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compare(name: str, device: str, batch: int, start: str, rounds: int, precision: str) -> list[Row]:
    """The rows of one model at one batch size: float32 arrays, and halves."""
    module, path = DEFINITIONS[name].build(), MODELS[name].path
    inputs = MODELS[name].inputs(np.random.default_rng(batch), batch)
    expected = module.cuda()(*[torch.from_numpy(a).cuda() for a in inputs.values()]).cpu().numpy()
    rival, hint = Compiled(module, precision), {"INFERENCE_PRECISION_HINT": precision}
    with tempfile.TemporaryDirectory() as folder:
        paths = {"f32": path, precision: as_half(path, Path(folder) / "half.onnx", PRECISIONS[precision])}
        runners = {kind: Dovetail(p, device, hint) for kind, p in paths.items()}
        feeds = {"f32": inputs, precision: halves(inputs, PRECISIONS[precision])}
        calls: dict[str, Callable[[], Any]] = {}
        errors = {}
        for kind, runner in runners.items():
            (result,) = runner.run(feeds[kind]).values()
            errors[kind] = error_figures(result.astype(np.float32), expected)[1]
            calls[kind] = functools.partial(runner.infer, feeds[kind])
            calls[f"torch {kind}"] = functools.partial(rival.run, feeds[kind], half=kind == precision)
        for call in calls.values():  # graphs are captured in the second run
            for _ in range(5):
                call()
        with alone(start):
            times = {key: median(samples) for key, samples in interleaved(calls, rounds).items()}
    return [
        {
            "model": name,
            "batch": batch,
            "arrays": kind,
            f"torch.compile {precision} ms": times[f"torch {kind}"],
            "dovetail ms": times[kind],
            "x": times[kind] / times[f"torch {kind}"],
            "relative": errors[kind],
        }
        for kind in paths
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL", help="the dovetail device")
    options.add_argument("--only", choices=sorted(DEFINITIONS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, action="append", help="repeatable; 1, 8 and 32 by default")
    options.add_argument("--precision", choices=sorted(PRECISIONS), default="f16", help="of the hint, and of PyTorch's module")
    options.add_argument("--start", default="", help="a file to wait for, and to lock, before anything is timed")
    options.add_argument("--rounds", type=int, default=9)
    arguments = options.parse_args()
    torch.backends.cudnn.benchmark = True
    rows: list[Row] = []
    with torch.inference_mode():
        for name in arguments.only or DEFINITIONS:
            for batch in arguments.batch or (1, 8, 32):
                rows += compare(name, arguments.device, batch, arguments.start, arguments.rounds, arguments.precision)
    summary = {"gpu": torch.cuda.get_device_name(), "geometric mean x": geometric_mean([row["x"] for row in rows])}
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
