"""Runs every kernel of this package in Oclgrind: the operators' cases, and sizes of 1, 3, 17 and round the tiles.

`python oclgrind_sweep.py [--every N] [--part I/N] [--only TEXT]` starts itself again inside oclgrind and exits with 1 when a
kernel reads or writes out of bounds, races, uses a value that was never written, gives a wrong result for a case, or was not
run at all. Each kernel runs as a device of kind CPU and of kind GPU would choose it, and forced wherever it is accepted.
`--every N` takes one in N of the runs, but always one of each kernel: what CI has time for.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Graph, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.op import Operator
from dovetail.ops import find
from dovetail.testing import Case, passed
from dovetail_gpu_opencl import buffers, dovetail_device_info
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.view import View

LOG = "DOVETAIL_OCLGRIND_LOG"
OPTIONS = ("--data-races", "--uninitialized", "--max-errors", "1000", "--build-options", "-cl-opt-disable")
"""Without optimisation, because Oclgrind 21.10 stops at an instruction (`freeze`) that the optimiser makes."""

CHAINS = ("elu", "erf", "gelu", "hard_swish", "leaky_relu", "mish", "sigmoid", "softplus", "tanh")
ELSEWHERE: dict[str, str] = {}
"""Kernels that Oclgrind cannot run, each with the reason."""

LINES = (1, 3, 17, 63, 65, 257)
POINTS = (1, 3, 17, 127, 129)
PRODUCTS = ((1, 1, 1), (3, 17, 5), (17, 3, 33), (31, 33, 17), (63, 65, 9), (1, 65, 129), (127, 3, 2))

PLANTED = {
    "Invalid write": "__kernel void k(__global int* x, __global int* y) { y[get_global_id(0) + 1] = 1; }",
    "Invalid read": "__kernel void k(__global int* x, __global int* y) { y[get_global_id(0)] = x[get_global_id(0) + 1]; }",
    "data race": "__kernel void k(__global int* x, __global int* y) { y[0] = get_global_id(0); y[1] = 0; y[2] = 0; y[3] = 0; }",
    "Uninitialized": (
        "__kernel void k(__global int* x, __global int* y) {"
        " __local int w[8]; y[get_global_id(0)] = w[get_local_id(0)] > 3 ? x[0] : 2; }"
    ),
}
"""Kernels with a defect, and the word that Oclgrind has for it: a log that stays empty must mean something."""


@dataclass(frozen=True, eq=False)
class Item:
    """One run: a graph of one node for a kind of device and a kernel; `case` when its results are known."""

    label: str
    kind: str
    kernel: CLKernel
    graph: Graph
    feeds: Sequence[NDArray[Any]]
    case: Case | None


class Forced(OpenCLDevice):
    """A device of some kind that knows one kernel only."""

    forced: CLKernel | None = None

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        return super().kernels(node) if self.forced is None else (self.forced,)


def stems() -> list[str]:
    folder = resources.files("dovetail_gpu_opencl") / "kernels"
    return sorted(p.name.removesuffix(".py") for p in folder.iterdir() if p.name.endswith(".py") and p.name[0] != "_")


def cases() -> Iterator[tuple[str, Case]]:
    """The conformance kit's cases of all operators that have kernels or are chains."""
    for stem in (*stems(), *CHAINS):
        for case in import_module(f"dovetail.testing.cases.{stem}").cases(np.random.default_rng(5)):
            arrays = [a for a in (*case.inputs, *case.expected) if a is not None]
            if not any(DType.of(a.dtype) in (DType.STRING, DType.BFLOAT16) for a in arrays):
                yield f"{stem}/{case.name}", case


def sizes() -> Iterator[tuple[str, Case]]:
    """The operators whose kernels work by tiles, lines or groups, at sizes of 1, 3, 17 and round those."""
    rng = np.random.default_rng(6)

    def made(name: str, *inputs: NDArray[Any], constants: tuple[int, ...] = (), **attributes: Any) -> tuple[str, Case]:
        found = find(name, 24)
        assert found is not None, name
        return f"{name} of {', '.join(str(i.shape) for i in inputs)}", Case(
            name, found(**attributes), inputs, (), constants=constants
        )

    def floats(*dims: int) -> NDArray[np.float32]:
        return rng.standard_normal(dims).astype(np.float32)

    for n in POINTS:
        yield made("Relu", floats(n))
        yield made("Add", floats(n, 3), floats(3))
        yield made("Where", floats(n) > 0, floats(n), floats(1))
        yield made("Cast", floats(n), to=DType.INT64)
    for n in LINES:
        for name in ("Softmax", "LogSoftmax", "Hardmax"):
            yield made(name, floats(3, n))
        yield made("Softmax", floats(n, 3), axis=0)
        yield made("LayerNormalization", floats(3, n), floats(n), floats(n), constants=(1, 2))
        yield made("ReduceMax", floats(3, n), np.array([1]), constants=(1,))
        yield made("ReduceSum", floats(n, 3), np.array([0]), constants=(1,))
        yield made("ReduceLogSumExp", floats(2, n, 3), np.array([1]), constants=(1,))
        yield made("ArgMax", floats(3, n), axis=1)
        yield made("TopK", floats(3, n), np.array([min(3, n)]), constants=(1,))
        yield made("CumSum", floats(3, n), np.array(1), constants=(1,))
        yield made("InstanceNormalization", floats(2, 3, n), floats(3), floats(3), constants=(1, 2))
    for m, n, k in PRODUCTS:
        for constants in ((), (1,)):
            yield made("MatMul", floats(m, k), floats(k, n), constants=constants)
            yield made("Gemm", floats(m, k), floats(n, k), floats(n), constants=constants, transB=1)
        yield made("Transpose", floats(m, n), perm=(1, 0))
        yield made("Transpose", floats(2, m, n, 3), perm=(0, 2, 3, 1))
        yield made("MatMul", floats(2, m, k), floats(2, k, n))
    for channels, maps, side in ((1, 1, 1), (3, 17, 3), (17, 3, 17), (3, 33, 9), (5, 15, 31)):
        x = floats(2, channels, side, side)
        yield made("Conv", x, floats(maps, channels, 1, 1), floats(maps), constants=(1, 2))
        yield made("Conv", x, floats(maps, channels, 3, 3), constants=(1,), pads=(1, 1, 1, 1), strides=(2, 2))
        yield made("Conv", x, floats(channels, 1, 3, 3), constants=(1,), group=channels, pads=(1, 1, 1, 1))
        yield made("ConvTranspose", x, floats(channels, 3, 2, 2), constants=(1,), strides=(2, 2))
        yield made("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        yield made("AveragePool", x, kernel_shape=(2, 2), pads=(1, 1, 1, 1), strides=(2, 2))
        yield made("GlobalAveragePool", x)
        yield made("Gather", x, rng.integers(0, side, (maps,)), axis=2)
        yield made("Concat", x, x, axis=1)
        yield made("Resize", x, np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32), constants=(1, 2), mode="linear")


def items(devices: dict[str, Forced]) -> Iterator[Item]:
    for label, case in (*cases(), *sizes()):
        for constants in {tuple(case.constants), (*case.constants, 1)} if len(case.inputs) > 1 else {tuple(case.constants)}:
            try:
                graph, feeds = single(case, constants)
            except (ValueError, TypeError):
                raise RuntimeError(f"{label}: no graph can be made of it") from None
            node = TypedNode.of(graph.nodes[0], graph)
            for kind, device in devices.items():
                device.forced = None
                accepted = [k for k in device.kernels(node) if k.supports(node)]
                # What moves nothing is never run by the kernels behind, which need not be able to.
                for kernel in accepted[:1] if accepted and isinstance(accepted[0], View) else accepted:
                    yield Item(label, kind, kernel, graph, feeds, case if case.expected else None)


def single(case: Case, constants: tuple[int, ...]) -> tuple[Graph, list[NDArray[Any]]]:
    """A graph of one node, and the arrays for its inputs."""
    g, feeds, names = GraphBuilder(), [], []
    for index, array in enumerate(case.inputs):
        if array is not None and index not in constants:
            feeds.append(np.ascontiguousarray(array))
        names.append(_name(g, index, array, constants))
    outputs = max(1, len(case.expected)) if case.expected else len(_inferred(case.op, g, names))
    written = [f"y{i}" for i in range(outputs)]
    g.node(case.op, *names, outputs=written, name="node")
    graph = g.graph(written)
    types = dict(graph.types)
    types.update(zip(written, _inferred(case.op, g, names), strict=False))
    return graph.replace(types=types), feeds


def _name(g: GraphBuilder, index: int, array: NDArray[Any] | None, constants: tuple[int, ...]) -> str:
    if array is None:
        return ""
    return g.constant(array, name=f"x{index}") if index in constants else g.input(f"x{index}", array.dtype.name, array.shape)


def _inferred(op: Operator, g: GraphBuilder, names: Sequence[str]) -> tuple[Any, ...]:
    given = op.infer(*(g.type_of(name) if name else None for name in names))
    return given if isinstance(given, tuple) else (given,)


class KeepBuffers:
    """Stands for pyopencl where buffers are made, and keeps them all.

    Oclgrind 21.10 gives the place of a freed buffer to the next one, but the note of which bytes were written keeps the size of
    the first: it would call all bytes behind that never written.
    """

    kept: ClassVar[list[Any]] = []

    def __getattr__(self, name: str) -> Any:
        import pyopencl as cl

        return getattr(cl, name)

    def Buffer(self, *arguments: Any, **options: Any) -> Any:  # noqa: N802  # pyopencl's name
        import pyopencl as cl

        self.kept.append(cl.Buffer(*arguments, **options))
        return self.kept[-1]


class Log:
    """What Oclgrind wrote since it was looked at last."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0

    def news(self) -> str:
        content = self._path.read_bytes() if self._path.exists() else b""
        found, self._seen = content[self._seen :].decode(errors="replace"), len(content)
        return found.strip()


def check_tool(device: OpenCLDevice, log: Log) -> None:
    """Raise RuntimeError when a planted defect goes unseen."""
    import pyopencl as cl

    context = device._context
    queue = cl.CommandQueue(context)
    for word, source in PLANTED.items():
        kernel = cl.Kernel(cl.Program(context, source).build(), "k")
        x, y = (
            cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(4, np.int32)) for _ in "xy"
        )
        kernel(queue, (4,), (4,), x, y)
        queue.finish()
        said = log.news()
        if word.casefold() not in said.casefold():
            raise RuntimeError(f"oclgrind does not see a planted defect ({word}): {said or 'it says nothing'}")


def run(device: Forced, item: Item) -> str:
    """What is wrong with the results; empty when nothing is."""
    device.forced = item.kernel
    executable = device.compile(item.graph, {})
    request = executable.create_request()
    results = [array.copy() for array in request.run(item.feeds)]
    request.close()
    executable.close()
    return passed(item.case, results) if item.case else ""


def sweep(every: int, part: tuple[int, int], only: str, log: Log) -> int:
    found = dovetail_device_info({})
    info = found[0] if isinstance(found, Sequence) else None
    if info is None or "Oclgrind" not in info.full_name:
        raise RuntimeError(f"this is not Oclgrind's device: {found}")
    setattr(buffers, "cl", KeepBuffers())  # noqa: B010  # for mypy, which knows what a module is
    own = OpenCLDevice(info)
    check_tool(own, log)
    devices = {kind: Forced(info, caps=dataclasses.replace(own.caps, kind=kind, vector_width=8)) for kind in ("CPU", "GPU")}
    failures, seen, done = 0, set(), 0
    for index, item in enumerate(items(devices)):
        key = (item.kernel.name, item.kind, item.label.split("/")[0].split(" ")[0])
        first = key not in seen
        seen.add(key)
        if only not in f"{item.label} by {item.kernel.name}" or (index % every and not first) or index % part[1] != part[0]:
            continue
        done += 1
        try:
            wrong = run(devices[item.kind], item)
        except Exception as error:  # whatever it is, the other kernels have their turn
            wrong = f"{type(error).__name__}: {error}"
        if said := "\n".join(text for text in (wrong, log.news()) if text):
            failures += 1
            print(f"FAILED: {item.label} by {item.kernel.name} as on a {item.kind}\n{said[:3000]}\n", flush=True)
    names = {name for name, _, _ in seen}
    missing = sorted(known_kernels() - names - set(ELSEWHERE)) if not only else []
    for name in missing:
        print(f"NOT RUN: the kernel {name}: no case and no size is accepted by it")
    print(f"{done} runs of {len(names)} kernels, {failures} with errors")
    return int(bool(failures or missing or not done))


def known_kernels() -> set[str]:
    """The names of all kernels of all lists."""
    return {kernel.name for stem in stems() for kernel in import_module(f"dovetail_gpu_opencl.kernels.{stem}").KERNELS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="which part of how many, from 0, to share the work between processes")
    parser.add_argument("--only", default="", help="runs whose label or kernel has this text")
    arguments = parser.parse_args()
    if LOG in os.environ:
        warnings.simplefilter("ignore")
        index, count = (int(number) for number in arguments.part.split("/"))
        return sweep(arguments.every, (index, count), arguments.only, Log(Path(os.environ[LOG])))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        environment = {**os.environ, LOG: str(path), "DOVETAIL_CACHE_LIMIT": "0"}
        command = [
            "oclgrind",
            *OPTIONS,
            "--num-threads",
            "1",
            "--global-mem-size",
            "4000000000",
            "--log",
            str(path),
            sys.executable,
            __file__,
            *sys.argv[1:],
        ]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
