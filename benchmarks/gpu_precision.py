"""The gain of lower precision on a GPU, in one run: OPENCL in f32, tf32, bf16, f16 and int8, PyTorch's CUDA graphs.

`python benchmarks/gpu_precision.py [--batch N] [--only MODEL]` takes the float32 model with each `INFERENCE_PRECISION_HINT`, the
model converted to float16 with the hint f16, and as `int8` the QDQ model without a hint, where `python benchmarks/models.py
quantize` wrote one; the summary names models without. dovetail's times are wall times from NumPy to NumPy, interleaved; PyTorch's
are those of a CUDA graph whose data stay on the GPU. `x f32` and `x f16` are the time over that with these hints; `relative` the
largest error against PyTorch on the CPU in float64, of the largest output; int8 MiniLM is calibrated without padding, which these
inputs have, so that its error says nothing. Without CUDA only dovetail is measured.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from _common import FULLY_QUANTIZED, MODELS, MODELS_DIR, QUANTIZED, Arrays, Row, emit, error_figures, interleaved, median, parser
from _runners import Dovetail
from gpu import TorchCuda, device_milliseconds
from models import DEFINITIONS, as_half, export, halves
from torch import nn

INT8 = QUANTIZED | FULLY_QUANTIZED
VARIANTS = {
    "f32": ("f32", ""),
    "tf32": ("tf32", ""),
    "bf16": ("bf16", ""),
    "f16": ("f16", ""),
    "float16 model": ("f16", "half"),
    "int8": ("f32", "qdq"),
}
"""The hint, and which form of the model: float32 as it is, converted to float16, or quantized."""


def graph_milliseconds(module: nn.Module, inputs: Arrays, variant: str) -> float | None:
    """A CUDA graph of the module with that arithmetic; None where it is that of another variant, or without CUDA."""
    if not torch.cuda.is_available() or variant in ("bf16", "f16", "int8"):
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = variant == "tf32"
    if variant == "float16 model":
        module, inputs = module.half(), halves(inputs)
    found = device_milliseconds(TorchCuda(module, inputs).replay, 100)
    module.float().cpu()
    return found


def compare(name: str, module: nn.Module, paths: dict[str, Path], device: str, batch: int, rounds: int) -> list[Row]:
    """The rows of one model."""
    inputs = MODELS[name].inputs(np.random.default_rng(batch), batch)
    given = [torch.from_numpy(a.astype(np.float64) if a.dtype == np.float32 else a) for a in inputs.values()]
    expected = module.double()(*given).numpy()
    module.float()
    runners, feeds = {}, {}
    for variant, (hint, form) in VARIANTS.items():
        if form in paths:
            runners[variant] = Dovetail(paths[form], device, {"INFERENCE_PRECISION_HINT": hint})
            feeds[variant] = halves(inputs) if form == "half" else inputs
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
            "x f16": times[variant] / times["f16"],
            "relative": error_figures(results[variant].astype(np.float64), expected)[1],
            "torch graph ms": graph_milliseconds(module, inputs, variant),
        }
        for variant in runners
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
    quantized = set[str]()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for name in arguments.only or DEFINITIONS:
            path, module = export(name, Path(folder))
            assert module is not None
            paths = {"": path, "half": as_half(path, Path(folder) / f"{name}_half.onnx")}
            if f"{name}_qdq" in INT8 and (MODELS_DIR / f"{name}_qdq.onnx").exists():
                paths["qdq"] = INT8[f"{name}_qdq"].path
                quantized.add(name)
            rows += compare(name, module, paths, arguments.device, arguments.batch, arguments.rounds)
    summary = {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}
    if missing := [name for name in arguments.only or DEFINITIONS if f"{name}_qdq" in INT8 and name not in quantized]:
        summary["no int8"] = f"{', '.join(missing)}: `python benchmarks/models.py quantize` writes the models, with onnxruntime"
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
