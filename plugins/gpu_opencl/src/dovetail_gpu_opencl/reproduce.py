"""Writes a node's kernels as a separate program: sources, real inputs, launches, and the expected results."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import Node, TensorType, node_reference
from dovetail.errors import DovetailError, UsageError
from dovetail_gpu_opencl.compiled import CompiledGraph, Flags, bind
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.launch import (
    Argument,
    Constant,
    Counters,
    Fault,
    Image,
    Launch,
    Local,
    Null,
    Read,
    Scalar,
    Scratch,
    Write,
)
from dovetail_gpu_opencl.program import build_options
from dovetail_gpu_opencl.reorder import in_layout

__all__ = ["write_program"]

Array = NDArray[Any]


def write_program(compiled: CompiledGraph, name: str, inputs: Sequence[Array], folder: Path) -> Path:
    """Run the executable up to a node and write `reproduce.py` with its files into a folder.

    What is expected is the operator's reference where there is one, with its post-ops, else what the kernels gave here. Raises
    `UsageError` for a node that launches nothing, and when the folder cannot be written.
    """
    node = next(node for node in compiled.graph.nodes if node.name == name)
    launches = [c.launch for c in compiled.commands if c.node == str(node)]
    if not launches:
        raise UsageError(f"node {node} launches no kernel: it moves nothing, or has no elements")
    values = _Values(compiled, inputs)
    before, after = values.around(node)
    expected, origin = _expected(compiled, node, before, after)
    files = _Files(compiled, launches, before)
    written = {value: in_layout(array, compiled.graph.types[value]) for value, array in expected.items()}
    try:
        for index, launch in enumerate(launches):
            (folder / f"kernel{index}.cl").write_text(launch.source, encoding="utf-8")
        for number, array in files.arrays.items():
            np.save(folder / f"buffer{number}.npy", array, allow_pickle=False)
        for index, array in enumerate(written.values()):
            np.save(folder / f"expected{index}.npy", array, allow_pickle=False)
        outputs = {files.number(Write(value)): index for index, value in enumerate(written)}
        path = folder / "reproduce.py"
        path.write_text(_program(compiled, node, launches, files, outputs, origin), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be written: {error.strerror}") from error
    return path


class _Values:
    """Runs the executable command by command, to read values before their memory is reused."""

    def __init__(self, compiled: CompiledGraph, inputs: Sequence[Array]) -> None:
        self._compiled = compiled
        with translated("creating a command queue"):
            self._queue = cl.CommandQueue(compiled.context, compiled.device)
        self._memory = compiled.new_buffers()
        self._buffers = compiled.allocate(self._memory)
        self._buffers |= {name: self._memory.empty(compiled.nbytes(name), name) for name in compiled.graph.states}
        for value, array in zip(compiled.graph.inputs, inputs, strict=True):
            if array.size:
                cl.enqueue_copy(self._queue, self._buffers[value], np.ascontiguousarray(array))

    def around(self, node: Node) -> tuple[dict[str, Array], dict[str, Array]]:
        """The inputs of the node and its results, in their layouts."""
        before: dict[str, Array] = {}
        buffers = self._compiled.new_buffers()
        zeros = (np.zeros(max(1, n), np.int32) for n in (len(self._compiled.faults), self._compiled.counters))
        flags = Flags(*(buffers.holding(array, "flags", written=True) for array in zeros))
        with translated(f"running up to node {node}"):
            for command in self._compiled.commands:
                if command.node == str(node) and not before:
                    before = {name: self._downloaded(name) for name in dict.fromkeys((*node.reads, *node.writes))}
                elif before and command.node != str(node):
                    break
                one = bind(self._compiled, command, self._buffers, self._compiled.constants(), flags, {})
                cl.enqueue_nd_range_kernel(self._queue, one.kernel, command.launch.global_size, command.launch.local_size)
            return before, {name: self._downloaded(name) for name in node.writes}

    def _downloaded(self, value: str) -> Array:
        compiled = self._compiled
        tensor = compiled.graph.types[value]
        root = compiled.root(value)
        if root not in self._buffers:
            return compiled.arrays[root].reshape(tensor.memory_dims)
        array = np.empty(tensor.memory_dims, tensor.dtype.numpy)
        if array.size:
            cl.enqueue_copy(self._queue, array, self._buffers[root])
        return array


def _expected(
    compiled: CompiledGraph, node: Node, before: dict[str, Array], after: dict[str, Array]
) -> tuple[dict[str, Array], str]:
    types = compiled.graph.types
    plain = {name: _plain(array, types[name]) for name, array in before.items()}
    if node.op.has_reference() or node.op.has_composition():
        try:
            given = node_reference(node, [plain[n] if n else None for n in node.inputs], [plain[n] for n in node.operands])
            return dict(zip(node.writes, given, strict=True)), "the operator's reference in NumPy"
        except DovetailError:  # such as an operator whose reference needs more than its inputs
            pass
    return {name: _plain(array, types[name]) for name, array in after.items()}, "what the kernels gave in the model"


def _plain(array: Array, tensor: TensorType) -> Array:
    return array.transpose(np.argsort(tensor.order)) if array.ndim else array


class _Files:
    """Numbers the buffers of the launches; a value and another one in the same memory have one number."""

    def __init__(self, compiled: CompiledGraph, launches: Sequence[Launch], before: dict[str, Array]) -> None:
        self._compiled = compiled
        self._numbers: dict[Any, int] = {}
        self.arrays: dict[int, Array] = {}
        self.sizes: dict[int, int] = {}
        self.images: dict[int, Image] = {}
        written: set[str] = set()
        for launch in launches:
            for argument in launch.arguments:
                self._add(argument, before, written)
            written.update(launch.writes)

    def number(self, argument: Argument) -> int:
        """The number of an argument's buffer."""
        return self._numbers[self._key(argument)]

    def _key(self, argument: Argument) -> Any:
        if isinstance(argument, Constant):
            return id(argument.array)
        if isinstance(argument, Read | Write):
            root = self._compiled.root(argument.value)
            # Values that share memory share a buffer here, too: the node may work in place.
            return self._compiled.memory.offsets.get(root, root)
        assert isinstance(argument, Scratch | Image)
        return argument.value

    def _add(self, argument: Argument, before: dict[str, Array], written: set[str]) -> None:
        if not isinstance(argument, Read | Write | Constant | Scratch | Image):
            return
        number = self._numbers.setdefault(self._key(argument), len(self._numbers))
        if isinstance(argument, Constant):
            self.arrays[number] = np.ascontiguousarray(argument.array)
        elif isinstance(argument, Image):
            self.images[number] = argument
        elif isinstance(argument, Read) and argument.value not in written and argument.value in before:
            self.arrays[number] = np.ascontiguousarray(before[argument.value])
        else:
            self.sizes[number] = max(1, self._compiled.nbytes(argument.value), self.sizes.get(number, 1))


def _program(
    compiled: CompiledGraph, node: Node, launches: Sequence[Launch], files: _Files, outputs: dict[int, int], origin: str
) -> str:
    calls = [_call(index, launch, files) for index, launch in enumerate(launches)]
    images = {n: (i.width, i.height, i.slices, i.dtype.value) for n, i in files.images.items()}
    sizes = {n: size for n, size in files.sizes.items() if n not in files.arrays}
    values = {
        "NODE": str(node),
        "DEVICE": compiled.device.name,
        "PLATFORM": compiled.device.platform.version,
        "ARRAYS": sorted(files.arrays),
        "SIZES": sizes,
        "IMAGES": images,
        "EXPECTED": outputs,
        "ORIGIN": origin,
    }
    constants = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    return _TEMPLATE.replace("@CONSTANTS@", constants).replace("@CALLS@", "\n".join(calls))


def _call(index: int, launch: Launch, files: _Files) -> str:
    options = build_options(launch)
    arguments = ", ".join(text for argument in launch.arguments for text in _argument(argument, files))
    call = f"    run({f'kernel{index}.cl'!r}, {options!r}, {launch.entry!r}, {launch.global_size!r}, {launch.local_size!r}, ["
    return f"{call}\n{textwrap.indent(arguments, '        ')}\n    ])"


def _argument(argument: Argument, files: _Files) -> Iterator[str]:
    match argument:
        case Scalar(value):
            # As bytes, since text does not hold every NaN and infinity.
            yield f"np.frombuffer({value.tobytes()!r}, {value.dtype.str!r})[0]"
        case Local(nbytes):
            yield f"cl.LocalMemory({nbytes})"
        case Null():
            yield "None"
        case Fault():
            yield from ("zeros(1)", "np.int32(0)")
        case Counters(count):
            yield from (f"zeros({count})", "np.int32(0)")
        case _:
            yield f"buffers[{files.number(argument)}]"


_TEMPLATE = '''"""The kernels of one node, with the data that they had in a model. Needs numpy and pyopencl.

python reproduce.py [WORD]: on the device where this was written if it is there, or on the first whose name or platform has WORD
in it. Exits with 1 when the results differ from what is expected.
"""

import sys
from pathlib import Path

import numpy as np
import pyopencl as cl

HERE = Path(__file__).resolve().parent
@CONSTANTS@


def find_device():
    devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    names = [f"{d.platform.name} {d.platform.version} {d.name}" for d in devices]
    word = sys.argv[1] if len(sys.argv) > 1 else f"{PLATFORM} {DEVICE}"
    return next((d for d, name in zip(devices, names) if word in name), None) or sys.exit(f"no device {word!r}; found: {names}")


device = find_device()
context = cl.Context([device])
queue = cl.CommandQueue(context)
flags = cl.mem_flags.READ_WRITE
buffers = {}
for number in ARRAYS:
    array = np.load(HERE / f"buffer{number}.npy", allow_pickle=False)
    buffers[number] = cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=array if array.size else np.zeros(1))
for number, size in SIZES.items():
    buffers[number] = cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(size, np.uint8))
for number, (width, height, slices, dtype) in IMAGES.items():
    kind = cl.channel_type.HALF_FLOAT if dtype == "float16" else cl.channel_type.FLOAT
    shape = (width, height) if slices is None else (width, height, slices)
    form = cl.ImageFormat(cl.channel_order.R, kind)
    buffers[number] = cl.create_image(context, flags, form, shape=shape, is_array=slices is not None)


def zeros(count):
    return cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(count, np.int32))


def run(file, options, entry, global_size, local_size, arguments):
    text = (HERE / file).read_text(encoding="utf-8")
    kernel = cl.Kernel(cl.Program(context, text).build(options, cache_dir=False), entry)
    kernel.set_args(*arguments)
    cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size).wait()


def same(number, index):
    expected = np.load(HERE / f"expected{index}.npy", allow_pickle=False)
    found = np.empty_like(expected)
    if found.size:
        cl.enqueue_copy(queue, found, buffers[number])
    if expected.dtype.kind not in "fV" or not found.size:
        close = bool(np.array_equal(found, expected))
        print(f"output {index}, {expected.dtype} {list(expected.shape)}: {'equal' if close else 'DIFFERENT'}")
        return close
    wide, want = found.astype(np.float64), expected.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    tolerance = (1e-4 if expected.dtype.itemsize >= 4 else 2e-2) * max(scale, 1e-30)
    close = bool(np.allclose(wide, want, rtol=0, atol=tolerance, equal_nan=True))
    with np.errstate(invalid="ignore"):
        worst = np.nanmax(np.where(wide == want, 0, np.abs(wide - want)))
    print(f"output {index}, {expected.dtype} {list(expected.shape)}: greatest difference {worst:.3g}, {tolerance:.3g} allowed")
    return close


def main():
    print(f"{NODE} on {device.name} ({device.platform.version}); expected is {ORIGIN}")
@CALLS@
    results = [same(number, index) for number, index in EXPECTED.items()]
    print("same" if all(results) else "DIFFERENT")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
'''
