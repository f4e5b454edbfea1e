"""Where the time of an OPENCL device goes: launches, memory or arithmetic, and how far each model is from the device's limits.

`python benchmarks/opencl_profile.py [-d OPENCL.0] [--only MODEL] [--batch N] [--precision f16] [--half] [--nodes]` runs each
model with profiled queues and prints, for each kernel, launches, device time, arithmetic and bytes (each input read once, each
output written once), and what the arithmetic or the bytes alone would take. The limits are measured first: an empty kernel, a
copy, multiply-adds in float32, and mma.sync in float16 where the device has it. `--half` takes models converted to float16.
Export the models first: `python benchmarks/models.py export`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from _common import FULLY_QUANTIZED, MODELS, QUANTIZED, Arrays, median, milliseconds, parser, print_table
from _runners import Dovetail
from models import as_half, halves
from numpy.typing import NDArray

from dovetail.device import TypedNode
from dovetail_gpu_opencl import executable
from dovetail_gpu_opencl.compiled import Command
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.request import InOrderRequest

SPECS = MODELS | QUANTIZED | FULLY_QUANTIZED
SOURCE = """
__kernel void nothing(__global float4* x) {}
__kernel void copied(__global float4* x) { x[get_global_id(0) + get_global_size(0)] = x[get_global_id(0)]; }
__kernel void multiplied(__global float4* x) {
  float a[16], b = x[0].x;
  for (int i = 0; i < 16; ++i) a[i] = i + get_local_id(0);
  for (int n = 0; n < 512; ++n)
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = fma(a[i], b, 0.5f);
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += a[i];
  if (sum == 1.5f) x[1].x = sum;
}
"""
MATRIX = """
__kernel void matrices(__global float4* x) {
  float c[8][4];
  uint a = get_local_id(0), b = as_uint(x[0].x);
  for (int i = 0; i < 32; ++i) c[i / 4][i % 4] = 0;
  for (int n = 0; n < 512; ++n)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
          : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]) : "r"(a), "r"(b));
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += c[i / 4][i % 4];
  if (sum == 1.5f) x[1].x = sum;
}
"""


@dataclass(frozen=True)
class Limits:
    """Microseconds of an empty kernel; bytes, float32 operations and float16 matrix operations a microsecond (0: none)."""

    launch: float
    memory: float
    arithmetic: float
    matrix: float

    def floor(self, flops: int, nbytes: int, low: bool) -> float:
        """Microseconds that so much takes at least."""
        rate = self.matrix if low and self.matrix else self.arithmetic
        return max(flops / rate, nbytes / self.memory)


def limits_of(name: str) -> Limits:
    """The limits of a device, each the best of 20 runs."""
    device = find_device(name)
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    nbytes = min(1 << 30, device.max_mem_alloc_size // 16 * 16)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)
    cl.enqueue_fill_buffer(queue, buffer, np.zeros(1, np.float32), 0, nbytes)

    def time(source: str, entry: str, size: int) -> float:
        kernel = cl.Kernel(cl.Program(context, source).build(), entry)
        kernel.set_arg(0, buffer)
        group = min(256, device.max_work_group_size)
        events = [cl.enqueue_nd_range_kernel(queue, kernel, (size,), (group,)) for _ in range(20)]
        queue.finish()
        return min(e.profile.end - e.profile.start for e in events) / 1e3

    items = device.max_compute_units * 2048
    matrix = 0.0
    if "cl_nv_compiler_options" in device.extensions.split():
        matrix = items / 32 * 512 * 8 * 16 * 8 * 16 * 2 / time(MATRIX, "matrices", items)
    moved = nbytes // 32 // 256 * 256
    return Limits(
        launch=time(SOURCE, "nothing", 256),
        memory=moved * 32 / time(SOURCE, "copied", moved),
        arithmetic=items * 512 * 16 * 2 / time(SOURCE, "multiplied", items),
        matrix=matrix,
    )


class Profiled(InOrderRequest):
    """A request whose queue takes times; `spans` are the start and end of each launch of the latest run, in nanoseconds."""

    latest: Profiled

    def _make_queue(self) -> Any:
        Profiled.latest = self
        properties = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._compiled.context, self._compiled.device, properties)

    def _enqueue_all(self, inputs: Sequence[NDArray[Any]], progress: list[int]) -> None:
        def copied(event: Any) -> None:
            self.copies.append((event.profile.start, event.profile.end))

        self.copies: list[tuple[int, int]] = []
        queue = self._queue
        pairs = [(b, a) for a, b in zip(inputs, self._uploads, strict=True) if b is not None]
        uploads = [cl.enqueue_copy(queue, *pair, is_blocking=False) for pair in pairs]
        events = [cl.enqueue_nd_range_kernel(queue, one.kernel, *sizes) for one, *sizes in self._launches]
        downloads = [cl.enqueue_copy(queue, *pair, is_blocking=False) for pair in self._to_read()]
        queue.finish()
        for event in (*uploads, *downloads):
            copied(event)
        self.spans = [(e.profile.start, e.profile.end) for e in events]

    @property
    def commands(self) -> Sequence[Command]:
        return self._compiled.commands

    def typed(self) -> dict[str, TypedNode]:
        """The nodes by what errors call them."""
        graph = self._compiled.graph
        return {str(node): TypedNode.of(node, graph) for node in graph.nodes}


@dataclass
class Part:
    """The time of all launches of one kind, in microseconds, and the least that they can take."""

    launches: int = 0
    time: float = 0.0
    flops: int = 0
    nbytes: int = 0
    floor: float = 0.0

    def row(self, name: str) -> list[str]:
        """A line of the table."""
        rates = self.flops / self.time / 1e6, self.nbytes / self.time / 1e6
        figures = (self.time, self.flops / 1e9, rates[0], self.nbytes / 1e6, rates[1], self.floor)
        return [name, str(self.launches), *(f"{figure:.3g}" for figure in figures)]


def profile(path: Path, device: str, inputs: Arrays, options: dict[str, Any], limits: Limits, by_node: bool) -> None:
    """Print the tables of one model."""
    plain = Dovetail(path, device, options)
    plain.infer(inputs)
    wall = median([milliseconds(lambda: plain.infer(inputs)) for _ in range(100)]) * 1e3
    made, executable.InOrderRequest = executable.InOrderRequest, Profiled
    try:
        profiled = Dovetail(path, device, options)
        profiled.infer(inputs)
    finally:
        executable.InOrderRequest = made
    request = Profiled.latest
    runs, copies = [], []
    for _ in range(30):
        profiled.infer(inputs)
        runs.append([end - start for start, end in request.spans])
        copies.append(sum(end - start for start, end in request.copies))
    times = np.median(np.array(runs), axis=0) / 1e3
    parts, nodes = collect(request, times, limits, options["INFERENCE_PRECISION_HINT"] != "f32")
    total = Part(*(sum(getattr(p, name) for p in parts.values()) for name in Part.__annotations__))
    rows = [part.row(name) for name, part in sorted(parts.items(), key=lambda item: -item[1].time)]
    rows += [part.row(name) for name, part in nodes.items()] if by_node else []
    print_table(["kernel", "launches", "us", "GFLOP", "TFLOP/s", "MB", "TB/s", "limit us"], [*rows, total.row("all")])
    empty = total.launches * limits.launch
    print(f"a run takes {wall:.0f} us, its kernels {total.time:.0f}, copies {median(copies) / 1e3:.0f}")
    print(f"the limits: {empty:.0f} us for {total.launches} empty kernels, {total.floor:.0f} us for memory or arithmetic\n")


def collect(request: Profiled, times: Iterable[float], limits: Limits, low: bool) -> tuple[dict[str, Part], dict[str, Part]]:
    """By kernel, and by node with its shapes."""
    parts: dict[str, Part] = {}
    nodes: dict[str, Part] = {}
    typed = request.typed()
    for command, time in zip(request.commands, times, strict=True):
        node = typed[command.node]
        label = " ".join([command.node, *(str(t) for t in (*node.inputs[:2], *node.outputs[:1]) if t)])
        first = label not in nodes
        for part in (parts.setdefault(command.launch.entry, Part()), nodes.setdefault(label, Part())):
            part.launches += 1
            part.time += time
            if first:
                flops = node.op.flops(node.inputs, node.outputs)
                # Of a table that is looked up in, only what is found is read.
                read = (*node.inputs[1:], *node.outputs) if node.op.stem == "gather" else node.inputs
                nbytes = sum(t.nbytes for t in (*read, *node.outputs, *node.operands) if t is not None)
                part.flops += flops
                part.nbytes += nbytes
                part.floor += limits.floor(flops, nbytes, low and node.op.stem in ("conv", "gemm", "mat_mul"))
    return parts, nodes


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0", help="the dovetail device")
    options.add_argument("--only", choices=sorted(SPECS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--precision", choices=("f32", "tf32", "bf16", "f16"), default="f32")
    options.add_argument("--half", action="store_true", help="models converted to float16")
    options.add_argument("--nodes", action="store_true", help="a line for each node, too")
    arguments = options.parse_args()
    limits = limits_of(arguments.device)
    rates = f"float32 {limits.arithmetic / 1e6:.1f} TFLOP/s, matrices in float16 {limits.matrix / 1e6:.0f} TFLOP/s"
    print(f"an empty kernel {limits.launch:.2f} us, copies {limits.memory / 1e6:.2f} TB/s, {rates}\n")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or ("resnet50", "mobilenet_v2", "minilm"):
            path, inputs = SPECS[name].path, SPECS[name].inputs(np.random.default_rng(0), arguments.batch)
            if arguments.half:
                path, inputs = as_half(path, Path(folder) / f"{name}.onnx"), halves(inputs)
            print(f"{name}, batch {arguments.batch}, {arguments.precision}{', float16 model' * arguments.half}")
            hint = {"INFERENCE_PRECISION_HINT": arguments.precision}
            profile(path, arguments.device, inputs, hint, limits, arguments.nodes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
