"""Latency on a GPU: dovetail's OPENCL device against PyTorch, eager and as a CUDA graph, on the same weights.

`python benchmarks/gpu.py [--batch 1 --batch 8 --batch 32] [--only MODEL] [--precision bf16] [--json]` builds each network,
exports it to a temporary file for dovetail and moves the module to CUDA for PyTorch (tf32 off, cuDNN autotuned). PyTorch's
`resident` figures leave its input and output on the GPU and are taken with CUDA events; `transfers` copies a NumPy input there
and the output back around the graph, as dovetail's request does, and both are wall times. All are medians. Without CUDA only
dovetail is measured.

With `--precision f16` or `bf16` dovetail gets the hint, and PyTorch's module is converted, with channels last; inputs and
outputs are float32 in both, which convert them on the GPU. `relative` is the largest error of dovetail's output against PyTorch
in float32, `torch relative` that of PyTorch's output in this precision, both of the largest number.
"""

from __future__ import annotations

import copy
import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from _common import MODELS, Arrays, Row, emit, error_figures, geometric_mean, interleaved, median, parser
from _runners import Dovetail
from models import DEFINITIONS, export
from torch import Tensor, nn

PRECISIONS = {"f32": None, "f16": torch.float16, "bf16": torch.bfloat16}


class TorchCuda:
    """A module on CUDA with fixed inputs: `eager` and `replay` leave results on the device, `transfer` starts from NumPy.

    With a data type it is a copy of the module in that type, with channels last, between float32 inputs and outputs.
    """

    def __init__(self, module: nn.Module, inputs: Arrays, dtype: torch.dtype | None = None) -> None:
        self._dtype = dtype
        self._module = module.cuda()
        if dtype is not None:
            lowered: Any = copy.deepcopy(module)  # whose overload of `to` for both is not typed
            self._module = lowered.to(dtype=dtype, memory_format=torch.channels_last)
        self._host = [torch.from_numpy(value) for value in inputs.values()]
        self._inputs = [value.cuda() for value in self._host]
        cuda: Any = torch.cuda  # whose classes come without types
        stream = cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # the warm-up that a capture needs, on a stream of its own
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = self.eager()

    def eager(self) -> Tensor:
        result: Tensor = self._module(*map(self._lowered, self._inputs))
        return result if self._dtype is None else result.float()

    def _lowered(self, value: Tensor) -> Tensor:
        if self._dtype is None or not value.is_floating_point():
            return value
        return value.to(self._dtype, memory_format=torch.channels_last if value.ndim == 4 else torch.preserve_format)

    def replay(self) -> None:
        self._graph.replay()

    def transfer(self) -> Any:
        for target, source in zip(self._inputs, self._host, strict=True):
            target.copy_(source)
        self._graph.replay()
        return self._output.cpu().numpy()


def device_milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of one call by CUDA events, after a tenth as many calls to warm up."""
    for _ in range(1 + repeats // 10):
        call()
    times, cuda = [], cast(Any, torch.cuda)  # whose classes come without types
    for _ in range(repeats):
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)


def compare(name: str, module: nn.Module, runner: Dovetail, batch: int, repeats: int, precision: str) -> Row:
    """One model at one batch size, on both runtimes."""
    inputs = MODELS[name].inputs(np.random.default_rng(batch), batch)
    calls: dict[str, Callable[[], Any]] = {"dovetail": functools.partial(runner.infer, inputs)}
    eager = graph = relative = own = None
    runner.run(inputs)
    runner.finish()  # after other batches plans are provisional
    if torch.cuda.is_available():
        expected = TorchCuda(module, inputs).transfer()
        rival = TorchCuda(module, inputs, PRECISIONS[precision])
        eager, graph = device_milliseconds(rival.eager, repeats), device_milliseconds(rival.replay, repeats)
        (actual,) = runner.run(inputs).values()
        relative, own = error_figures(actual, expected)[1], error_figures(rival.transfer(), expected)[1]
        calls["transfers"] = rival.transfer
    samples = {key: median(values) for key, values in interleaved(calls, rounds=5).items()}
    ours, transfers = samples["dovetail"], samples.get("transfers")
    return {
        "model": name,
        "batch": batch,
        "precision": precision,
        "torch eager resident ms": eager,
        "torch graph resident ms": graph,
        "torch graph transfers ms": transfers,
        "dovetail ms": ours,
        "x graph resident": ours / graph if graph else None,
        "x graph transfers": ours / transfers if transfers else None,
        "relative": relative,
        "torch relative": own,
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL", help="the dovetail device")
    options.add_argument("--only", choices=sorted(DEFINITIONS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, action="append", help="repeatable; 1, 8 and 32 by default")
    options.add_argument(
        "--precision", choices=sorted(PRECISIONS), default="f32", help="dovetail's hint, and PyTorch's data type"
    )
    options.add_argument("--repeats", type=int, default=100)
    arguments = options.parse_args()
    if not torch.cuda.is_available():
        print("PyTorch sees no CUDA device here: only dovetail is measured, and no ratio is given.", file=sys.stderr)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    hint = {} if arguments.precision == "f32" else {"INFERENCE_PRECISION_HINT": arguments.precision}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for name in arguments.only or DEFINITIONS:
            path, module = export(name, Path(folder))
            assert module is not None
            runner = Dovetail(path, arguments.device, hint)
            batches, how = arguments.batch or (1, 8, 32), (arguments.repeats, arguments.precision)
            rows += [compare(name, module, runner, batch, *how) for batch in batches]
    summary: dict[str, Any] = {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}
    for ratio in ("x graph resident", "x graph transfers"):
        values = [row[ratio] for row in rows if row[ratio]]
        summary[f"geometric mean {ratio}"] = geometric_mean(values) if values else None
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
