"""The gain of lower precision on a GPU, in one run: dovetail's OPENCL device in f32, tf32 and f16, and PyTorch's CUDA graphs.

`python benchmarks/gpu_precision.py [--batch N] [--only MODEL]` takes the float32 model with each `INFERENCE_PRECISION_HINT`, and
the model converted to float16 with the hint f16. dovetail's times are wall times from NumPy to NumPy, interleaved; PyTorch's are
those of a CUDA graph whose data stay on the GPU. `x f32` is the time over that in f32; `relative` the largest error against
PyTorch on the CPU in float64, of the largest output. Without CUDA only dovetail is measured.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from _common import MODELS, Arrays, Row, emit, error_figures, interleaved, median, parser
from _runners import Dovetail
from gpu import TorchCuda, device_milliseconds
from models import DEFINITIONS, as_half, export, halves
from torch import nn

VARIANTS = {"f32": ("f32", False), "tf32": ("tf32", False), "f16": ("f16", False), "float16 model": ("f16", True)}
"""The hint, and whether the model is converted."""


def graph_milliseconds(module: nn.Module, inputs: Arrays, variant: str) -> float | None:
    """A CUDA graph of the module with that arithmetic; None where it is that of another variant, or without CUDA."""
    if not torch.cuda.is_available() or variant == "f16":
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = variant == "tf32"
    if variant == "float16 model":
        module, inputs = module.half(), halves(inputs)
    found = device_milliseconds(TorchCuda(module, inputs).replay, 100)
    module.float().cpu()
    return found


def compare(name: str, module: nn.Module, paths: tuple[Path, Path], device: str, batch: int, rounds: int) -> list[Row]:
    """The rows of one model."""
    inputs = MODELS[name].inputs(np.random.default_rng(batch), batch)
    given = [torch.from_numpy(a.astype(np.float64) if a.dtype == np.float32 else a) for a in inputs.values()]
    expected = module.double()(*given).numpy()
    module.float()
    runners, feeds = {}, {}
    for variant, (hint, converted) in VARIANTS.items():
        runners[variant] = Dovetail(paths[converted], device, {"INFERENCE_PRECISION_HINT": hint})
        feeds[variant] = halves(inputs) if converted else inputs
    results = {variant: next(iter(runner.run(feeds[variant]).values())) for variant, runner in runners.items()}
    calls = {variant: functools.partial(runner.infer, feeds[variant]) for variant, runner in runners.items()}
    times = {variant: median(samples) for variant, samples in interleaved(calls, rounds).items()}
    return [
        {
            "model": name,
            "batch": batch,
            "precision": variant,
            "dovetail ms": times[variant],
            "x f32": times[variant] / times["f32"],
            "relative": error_figures(results[variant].astype(np.float64), expected)[1],
            "torch graph ms": graph_milliseconds(module, inputs, variant),
        }
        for variant in VARIANTS
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL", help="the dovetail device")
    options.add_argument("--only", choices=sorted(DEFINITIONS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--rounds", type=int, default=9)
    arguments = options.parse_args()
    torch.backends.cudnn.benchmark = True
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for name in arguments.only or DEFINITIONS:
            path, module = export(name, Path(folder))
            assert module is not None
            paths = path, as_half(path, Path(folder) / f"{name}_half.onnx")
            rows += compare(name, module, paths, arguments.device, arguments.batch, arguments.rounds)
    emit(arguments.json, rows, {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
