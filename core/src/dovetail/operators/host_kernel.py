"""Kernels for the host that an operator has: several implementations, each with the configurations it supports."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from operator import is_
from typing import Any, ClassVar

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.errors import OperatorError, UsageError
from dovetail.graph.dtype import DType
from dovetail.graph.graph import KernelSource
from dovetail.graph.layout import ANY, PLAIN, Layout
from dovetail.graph.types import TensorType
from dovetail.names import stem_of

Types = Sequence[TensorType | None]
Arrays = Sequence[NDArray[Any] | None]

_RESERVED = ("ref", "view")
"""Names with a meaning of their own in reports."""


class KernelRefused(Exception):
    """The kernel does not take this node, and why: raised by `HostKernel.prepare` and by functions of an `OpenCLKernel`.

    The next configuration or kernel is tried. Never leaves the runtime.
    """


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One input or output in a configuration.

    `dtype` is that of the value: nothing is converted. `layout` is the order of its dimensions in memory; `ANY` means
    whichever, one and the same for all ports so marked, blocked ones included. `Layout.of("nChw16c")` and its like are for
    devices that keep values so; elsewhere such a configuration is passed over, with the reason in the report. `in_place` on an
    output is the index of the input whose memory it is, -1 for memory of its own; both must have one type and layout.
    `constant` on an input: only a constant will do.
    """

    dtype: DType
    layout: Layout = PLAIN
    in_place: int = -1
    constant: bool = False


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One way in which a host kernel takes a node.

    `inputs` has an entry for each input of the node, `outputs` for each output, None for those left out; such entries at the
    end may be missing. `dynamic_batch` says that the kernel would also take other sizes of dimension 0. It is only kept, for
    tools that ask: plans are made for one set of shapes, so nothing depends on it yet.
    """

    inputs: tuple[PortConfig | None, ...]
    outputs: tuple[PortConfig | None, ...]
    dynamic_batch: bool = False

    @staticmethod
    def uniform(inputs: Types, outputs: Types, layout: Layout = PLAIN, *, in_place: int = -1) -> "HostConfig":
        """Every port with its own data type, all in one layout; output 0 in the memory of the input `in_place`."""
        into = [in_place, *[-1] * len(outputs)][: len(outputs)]
        return HostConfig(
            tuple(None if t is None else PortConfig(t.dtype, layout) for t in inputs),
            tuple(None if t is None else PortConfig(t.dtype, layout, k) for t, k in zip(outputs, into, strict=True)),
        )


class HostKernel(KernelSource, ABC):
    """A kernel in Python for the CPU, in the manner of the CPU extensions of 2018; listed in `Operator.kernels`.

    An operator may bring several (`kernels = (FastPath(), General())`). They are asked in order: the first with a
    configuration that fits the node and that `prepare` takes runs the node, ahead of the operator's `reference`. Which of its
    configurations is used is chosen for the whole graph, so that the fewest bytes are reordered.

    One object serves all nodes, requests and threads, so it has no state. What belongs to one request (work arrays, weights
    in another order) is made in `bind`.

    Inputs and outputs are in the order of the operator's ports, None for those left out, up to the last port.
    """

    language: ClassVar[str] = "host"
    name: ClassVar[str] = ""
    """The kernel's name in reports. Default: the class name as words, `FastPath` -> `fast_path`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = stem_of(cls.__name__)
        if cls.name in _RESERVED or not cls.name.isprintable() or not cls.name:
            raise OperatorError(
                f"host kernel {cls.__qualname__}: the name {cls.name!r} cannot be used", hint="give the class another `name`"
            )

    @property
    def origin(self) -> str:
        """Where the kernel is defined, as commands show it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @abstractmethod
    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        """The configurations that the kernel supports, the best first; others than the node's types and constants are skipped.

        Shapes are numbers; `inputs[i].value` has the content of a constant. Layouts do not show in shapes.
        """

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        """The configuration that is really taken: `config`, or that without `in_place` or `dynamic_batch`.

        Raises `KernelRefused` with a reason to refuse; then the next configuration is tried, and after the last one the next
        kernel. Called while planning, and more than once for a node; the answer depends on the arguments only.
        """
        return config

    @abstractmethod
    def execute(self, op: Any, config: HostConfig, inputs: Arrays, outputs: Arrays) -> None:
        """Compute: write all of every output.

        Arrays are C-contiguous, in the memory order of the port's layout: [N, C, H, W] in NHWC comes as an array
        of shape [N, H, W, C], in nChw16c as [N, ceil(C / 16), H, W, 16]. What the channels past the last hold is undefined, and
        what is written there counts for nothing. Inputs are read-only, but for those whose memory an output takes over
        (`in_place`): there both are one array, which holds the input.
        """

    def bind(self, op: Any, config: HostConfig, inputs: Arrays, outputs: Arrays) -> Callable[[], object]:
        """The function that each run of one request calls. Called once for each request, whose arrays stay where they are.

        The content of constants is there already, that of other inputs is not. Override it to keep state for a request. The
        default calls `execute`, and raises `OperatorError` when it has put another array in the place of an output.
        """
        return partial(_run, self, op, config, inputs, outputs, tuple(outputs))


def _run(kernel: HostKernel, op: Any, config: HostConfig, inputs: Arrays, outputs: Arrays, kept: Sequence[Any]) -> None:
    kernel.execute(op, config, inputs, outputs)
    if len(outputs) != len(kept) or not all(map(is_, outputs, kept)):  # the result would be what the memory held before
        raise OperatorError(
            f"host kernel {kernel.name!r}: execute() replaced an output instead of writing it",
            hint="write into the array: outputs[0][...] = result",
        )


def prepared(
    kernel: HostKernel, op: Any, inputs: Types, outputs: Types, blocked: Collection[int] = ()
) -> tuple[tuple[HostConfig, ...], tuple[str, ...]]:
    """The configurations that the kernel takes, as prepared, and why it does not take the others.

    `blocked` has the block sizes in which the device keeps float32 values. Raises `OperatorError` for one that no node could
    have, and for a change that `prepare` must not make.
    """
    taken, reasons = [], []
    given = kernel.configurations(op, inputs, outputs)
    if not isinstance(given, (list, tuple)) or not all(isinstance(config, HostConfig) for config in given):
        raise OperatorError(f"host kernel {kernel.name!r}: configurations() gave {given!r:.100}; accepted: a list of HostConfig")
    for index, config in enumerate(given):
        try:
            _check(kernel, config, inputs, outputs, blocked)
            taken.append(_prepare(kernel, op, config))
        except KernelRefused as refused:
            reasons.append(f"configuration {index}: {refused}")
    return tuple(taken), tuple(reasons) or (() if taken else ("it has no configuration",))


def _prepare(kernel: HostKernel, op: Any, config: HostConfig) -> HostConfig:
    got = kernel.prepare(op, config)
    if got != config and not (isinstance(got, HostConfig) and _is_downgrade(got, config)):
        raise OperatorError(
            f"host kernel {kernel.name!r}: prepare({config}) gave {got}",
            hint="return the configuration, or it with in_place=-1 or dynamic_batch=False, or raise KernelRefused",
        )
    return got


def _is_downgrade(got: HostConfig, config: HostConfig) -> bool:
    if got.inputs != config.inputs or len(got.outputs) != len(config.outputs) or (got.dynamic_batch and not config.dynamic_batch):
        return False
    pairs = zip(got.outputs, config.outputs, strict=True)
    return all(g == c or (c is not None and g == dataclasses.replace(c, in_place=-1)) for g, c in pairs)


def _check(kernel: HostKernel, config: HostConfig, inputs: Types, outputs: Types, blocked: Collection[int]) -> None:
    """Raises `KernelRefused` for a configuration that is not of this node, `OperatorError` for one that makes no sense."""
    for name, port, given in _ports(kernel, config, inputs, outputs):
        if port.dtype is not given.dtype:
            raise KernelRefused(f"{name} is {given.dtype}; accepted: {port.dtype}")
        if port.constant and given.value is None:
            raise KernelRefused(f"{name} is not a constant")
        if port.layout != ANY:
            try:
                port.layout.memory_dims(given.dims)
            except UsageError as error:
                raise KernelRefused(f"{name}: {error.message}") from None
        block = port.layout.block
        if block and not (block in blocked and given.dtype is DType.FLOAT32):
            raise KernelRefused(f"{name}: layout {port.layout}, and the device keeps no {given.dtype} in blocks of {block}")
    _check_in_place(kernel, config, inputs, outputs)


def _ports(kernel: HostKernel, config: HostConfig, inputs: Types, outputs: Types) -> Iterator[tuple[str, PortConfig, TensorType]]:
    for side, ports, types in (("input", config.inputs, inputs), ("output", config.outputs, outputs)):
        for index, (port, given) in enumerate(zip_longest(ports, types)):
            if port is not None and given is not None:
                yield f"{side} {index}", port, given
            elif given is not None:
                raise KernelRefused(f"{side} {index} is given, and the configuration leaves it out")
            elif port is not None and index >= len(types):
                raise OperatorError(f"host kernel {kernel.name!r}: a configuration has {len(ports)} {side}s, not {len(types)}")
            elif port is not None:
                raise KernelRefused(f"{side} {index} is left out")


def _check_in_place(kernel: HostKernel, config: HostConfig, inputs: Types, outputs: Types) -> None:
    # `_ports` has compared the counts: what only one of them has is left out.
    places = [(o, p, t) for o, (p, t) in enumerate(zip(config.outputs, outputs, strict=False)) if p is not None]
    sources = [p.in_place for _, p, _ in places if p.in_place >= 0]
    if len(set(sources)) < len(sources):
        raise OperatorError(f"host kernel {kernel.name!r}: two outputs take the memory of one input")
    for index, port, result in places:
        if port.in_place < 0:
            continue
        source = config.inputs[port.in_place] if port.in_place < len(config.inputs) else None
        if source is None or source.layout != port.layout:
            raise OperatorError(
                f"host kernel {kernel.name!r}: output {index} is in place of input {port.in_place}",
                hint="name an input that is present and has the same layout",
            )
        given = inputs[port.in_place]
        if given != result:
            raise KernelRefused(f"output {index} is {result}, which does not fit the memory of input {port.in_place}, {given}")
