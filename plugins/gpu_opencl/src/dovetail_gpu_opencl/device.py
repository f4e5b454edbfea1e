"""The device OPENCL: chooses kernels, builds programs, compiles graphs."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from dovetail.cache import FileCache
from dovetail.device import (
    Accepted,
    Binary,
    Choice,
    ConstantReaders,
    Device,
    DeviceError,
    DeviceInfo,
    DeviceUnavailable,
    DType,
    Graph,
    LayerConfig,
    MemoryPlan,
    Node,
    NodeReport,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    choose,
)
from dovetail.errors import CompileError, UsageError
from dovetail.locks import Lock
from dovetail_gpu_opencl.alike import AlikeNodes, Pattern, pattern_of
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.compiled import Command
from dovetail_gpu_opencl.custom_layers import CustomLayerKernel, load
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.driver_pages import first_context
from dovetail_gpu_opencl.dump import KernelDump
from dovetail_gpu_opencl.executable import CLExecutable
from dovetail_gpu_opencl.failures import as_dovetail, translated
from dovetail_gpu_opencl.hosting import OwnKernel
from dovetail_gpu_opencl.kernel import CLKernel, refuse_large
from dovetail_gpu_opencl.kernels._tiles import Tuned
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Scratch
from dovetail_gpu_opencl.lifetime import IN_USE
from dovetail_gpu_opencl.matrix_units import allowed, halves_of, remarks
from dovetail_gpu_opencl.memory_plans import MemoryPlans
from dovetail_gpu_opencl.options import Options
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.precision import lower
from dovetail_gpu_opencl.program import CACHE_SECTION, Programs, check_signature, check_source
from dovetail_gpu_opencl.table import TABLE, listed
from dovetail_gpu_opencl.tuner import tune
from dovetail_gpu_opencl.view import View

__all__ = ["OpenCLDevice"]

_STREAMS = 2


class OpenCLDevice(Device):
    """One OpenCL device and its context.

    For its options see `Options`. `caps` replaces the capabilities that the device reports: for tests that choose kernels of
    another kind of device.
    """

    takes_any_address = True
    round_trip = 4e-5  # an upload, a launch and a download, by threads of PoCL as by NVIDIA's driver
    _hurries = False
    """Whether plans after the first one take what is built: not where graphs are compiled that are not of one model."""

    def __init__(self, info: DeviceInfo, options: Mapping[str, Any] | None = None, caps: Capabilities | None = None) -> None:
        self.info = info
        self._configure(options or {})
        try:
            self._device = find_device(info.name)
        except KeyError:
            raise DeviceUnavailable(f"{info.name} ({info.full_name}) is no longer available") from None
        with translated(f"creating a context on {info.name}"), first_context(info.kind):
            self._context = cl.Context([self._device])
            self.caps = _with_images(caps or Capabilities.query(self._device), self._context)
        self.caps = allowed(self.caps, info.name, Options.read(self._options).INFERENCE_PRECISION_HINT)
        self.programs = Programs(self._context, self._device, self.caps, FileCache(CACHE_SECTION), info.name)
        self._lock = Lock()

    def configured(self, options: Mapping[str, Any]) -> "OpenCLDevice":
        """The device with the custom layers that the options name; context and programs are shared.

        After the first plan on a GPU, which is that of one model, others hurry: see `PackedConstants.hurried`.
        """
        other = copy.copy(self)
        other._configure({**self._options, **options})
        other._hurries = self.caps.kind == "GPU" and not Options.read(other._options).TUNE
        other.caps = allowed(self.caps, self.info.name, Options.read(other._options).INFERENCE_PRECISION_HINT)
        return other

    def afresh(self) -> "OpenCLDevice":
        """The device for a plan that chooses the fastest kernels and parameters for its sizes, not those that are built."""
        found = copy.copy(self)
        found._bound, found._packed, found._shared = {}, self._packed.afresh(), self._packed
        found._alike, found._memory_plans = AlikeNodes(), MemoryPlans()
        return found

    def for_streams(self, count: int | None) -> "OpenCLDevice":
        """The device for several requests at once, by itself for two: one transfers while the other one computes.

        Each request has a queue, so that nothing else changes.
        """
        found = copy.copy(self)
        found.streams = count or _STREAMS
        return found

    def prescribes(self, domain: str, op_type: str) -> bool:
        """Whether there is a custom layer for the operator."""
        return self._layers.find(domain, op_type) is not None

    def _configure(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._layers = load(Options.read(options).CONFIG_FILE)
        self._bound: dict[tuple[str, str], tuple[CLKernel, ...]] = {}
        # What plans decide by, and where they leave what they built; of a device that is `afresh` only the latter is shared.
        self._packed = self._shared = PackedConstants()
        self._alike, self._memory_plans = AlikeNodes(), MemoryPlans()

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether one of the kernels runs the node with its post-ops."""
        choice = self._choose(node)
        return choice if isinstance(choice, Refusal) else Accepted(choice.kernel.title(node), choice.kernel.from_operator)

    def lower(self, graph: Graph) -> Graph:
        """The graph with nodes joined that a kernel runs in one launch.

        Transposed convolutions are those of their phases where products are fast. With the hints f16 and bf16, products and what
        is between them are in that type, where the device has kernels for it.
        """
        halves = halves_of(self.caps)
        is_gpu = self.caps.kind == "GPU"
        if is_gpu and any(node.op.stem == "neg" for node in graph.nodes):
            from dovetail_gpu_opencl.kernels._rotated_halves import merge_rotations

            graph = merge_rotations(graph, self._runs)
        if is_gpu and any(node.op.stem == "transpose" for node in graph.nodes):
            from dovetail_gpu_opencl.kernels._quantized_attention import merge_quantized_attention
            from dovetail_gpu_opencl.kernels._transposed_sums import add_before_transposes

            graph = merge_quantized_attention(add_before_transposes(graph, self._runs), self._runs)
        if halves or self.caps.float_pipeline:
            if any(node.op.stem == "conv_transpose" for node in graph.nodes):
                from dovetail_gpu_opencl.kernels._conv_of_phases import split_transposed

                graph = split_transposed(graph, self._packed, partial(self._multiplies, halves or DType.FLOAT32))
            if any(node.op.stem == "attention" for node in graph.nodes):
                # The classes of standard operators are there where a graph has one of them.
                from dovetail_gpu_opencl.kernels._packed_attention import merge_parts, merge_products

                graph = merge_products(graph, self._runs, halves or DType.FLOAT32)
                graph = merge_parts(graph, self._runs, halves or DType.FLOAT32)
            graph = lower(graph, self._mixes, halves) if halves else graph
            if any(node.op.stem == "layer_normalization" for node in graph.nodes):
                from dovetail_gpu_opencl.kernels._normalized_product import merge_normalizations
                from dovetail_gpu_opencl.kernels._normalized_sum import merge_sums

                graph = merge_sums(merge_normalizations(graph, self._runs), self._runs)
        if is_gpu and any(node.op.stem == "conv" for node in graph.nodes):
            from dovetail_gpu_opencl.kernels._wide_and_deep import merge_pointwise

            graph = merge_pointwise(graph, self._runs)
        if is_gpu:
            from dovetail_gpu_opencl.kernels._fused_elementwise import fuse_elementwise
            from dovetail_gpu_opencl.kernels._joined_moves import merge_moves
            from dovetail_gpu_opencl.kernels._moved_operands import merge_operands

            graph = merge_moves(graph, self._kernel_of, self._runs)
            graph = merge_operands(graph, self._kernel_of, self._runs)
            graph = fuse_elementwise(graph, self._kernel_of, self._runs)
        return self._joined(graph)

    def _viewed(self, node: TypedNode) -> TypedNode:
        """The node as a view, if one of its kernels sees that it moves nothing."""
        if not node.post_ops:
            for kernel in TABLE[node.op]:
                if (found := kernel.as_view(node)) is not None:
                    return dataclasses.replace(node, node=dataclasses.replace(node.node, op=found))
        return node

    def _runs(self, node: TypedNode) -> bool:
        return not self._packed.splits(node) and not isinstance(self._choose(node), Refusal)

    def _kernel_of(self, node: TypedNode) -> CLKernel | None:
        choice = self._choose(node)
        return None if isinstance(choice, Refusal) else choice.kernel

    def _multiplies(self, dtype: DType, node: TypedNode) -> bool:
        """Whether a float32 convolution runs in a pipeline when its values are of this type."""
        (src, *others), (dst,) = node.inputs, node.outputs
        if src is not None and src.dtype is dst.dtype is DType.FLOAT32:
            node = dataclasses.replace(node, inputs=(src.with_dtype(dtype), *others), outputs=(dst.with_dtype(dtype),))
        choice = self._choose(node)
        return not isinstance(choice, Refusal) and choice.kernel.name == "conv_pipelined"

    def _mixes(self, node: TypedNode) -> bool | None:
        choice = self._choose(node)
        return None if isinstance(choice, Refusal) else choice.kernel.mixes

    def _joined(self, graph: Graph) -> Graph:
        groups: dict[tuple[object, ...], tuple[CLKernel, list[Node]]] = {}
        for node in graph.nodes:
            if not any(kernel.joins_nodes for kernel in TABLE[node.op]):
                continue
            typed = TypedNode.of(node, graph)
            choice = self._choose(typed)
            if isinstance(choice, Choice) and (key := choice.kernel.join_key(typed)) is not None:
                groups.setdefault((choice.kernel.name, key), (choice.kernel, []))[1].append(node)
        changed: dict[str, Node | None] = {}
        for kernel, nodes in groups.values():
            changed |= kernel.joined(graph, nodes)
        kept = [changed.get(node.name, node) for node in graph.nodes]
        return graph.replace(nodes=tuple(node for node in kept if node is not None)) if changed else graph

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts that the operator's kernel declares, any layout for elementwise kernels, else plain."""
        return self._chosen(node).kernel.configurations(node)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> CLExecutable:
        """Compile a graph in schedule order.

        Raises `CompileError` and `OutOfMemory` naming the node, `DeviceError` in a forked process and at the process's end.
        """
        with IN_USE, translated(f"compiling for {self.info.name}"):
            return self._compiled(graph, options)

    def _compiled(self, graph: Graph, given: Mapping[str, Any]) -> CLExecutable:
        options = self._checked(given)
        typed = {node.name: self._viewed(TypedNode.of(node, graph)) for node in graph.nodes}
        graph = graph.replace(nodes=tuple([node.node for node in typed.values()]))
        again = any(name in self._packed.choices for name in typed)
        provisional = self._packed.hurried and again
        chosen, leaders = self._all_chosen(graph, typed)
        if options.TUNE:
            self._tune((chosen[name].kernel, node) for name, node in typed.items())
        stubs = {name for name, n in typed.items() if {n.op.op_type, n.op.key} & {*options.STUB}}
        launches = self._all_launches(graph, typed, {n: c.kernel for n, c in chosen.items() if n not in stubs}, leaders)
        if again and not stubs:  # a plan alone has no use for it
            self._alike.learn({name: node for name, node in typed.items() if name not in leaders}, chosen, launches)
        graph = graph.replace(states=_kept_states(graph))
        memory = self._memory_plans.plan(graph, typed, {name: one.kernel for name, one in chosen.items()}, launches, stubs)
        needed = {name: [x for x in found if not _is_done(x, memory)] for name, found in launches.items()}
        titles = {name: str(typed[name].node) for name, found in needed.items() if found}
        by_node = ((launch, titles[name]) for name, found in needed.items() for launch in found)
        self.programs.prepare(by_node, apart=self._packed is not self._shared)  # then requests run meanwhile
        dump = KernelDump(options.DUMP_KERNELS, self._device) if options.DUMP_KERNELS else None
        commands = [
            self._command(typed[name], title, launch, chosen[name].kernel, dump)
            for name, title in titles.items()
            for launch in needed[name]
        ]

        def reports() -> Sequence[NodeReport]:
            found = [_report(typed[name], choice) for name, choice in chosen.items()]
            return [dataclasses.replace(r, kernel="stub", from_operator=False) if r.name in stubs else r for r in found]

        context, packed = self._context, self._packed
        executable = CLExecutable(context, self._device, self.caps, graph, commands, memory, options, self.programs, packed)
        executable.make_reports = reports
        executable.notes = remarks(self.caps, self.info.name)
        executable.provisional = provisional
        self._share(graph)
        return executable

    def _checked(self, given: Mapping[str, Any]) -> Options:
        """The options of a plan. Raises `DeviceError` for a queue that the device lacks, `UsageError` for those of a device."""
        options, own = Options.read({**self._options, **given}), Options.read(self._options)
        if options.QUEUE == "OUT_OF_ORDER" and not self.caps.out_of_order:
            raise DeviceError(f"{self.info.name} has no out-of-order queues", hint="leave out the option QUEUE")
        for name in ("CONFIG_FILE", "INFERENCE_PRECISION_HINT"):
            if getattr(options, name) != getattr(own, name):
                raise UsageError(f"{name} is given to compile() alone", hint="device.configured(options).compile(graph, options)")
        return options

    def _all_chosen(
        self, graph: Graph, typed: Mapping[str, TypedNode]
    ) -> tuple[Mapping[str, Choice[CLKernel]], Mapping[str, str]]:
        """The choice for each node, that of an earlier plan unless a value is large, and for some a node like them before.

        Raises as `_check_layouts`.
        """
        computed = {id(t): t for t in graph.types.values() if t.value is None}  # few, as equal ones are mostly one object
        large = any(refuse_large(t, self.caps) is not None for t in computed.values())
        leaders = {} if large else self._alike.leaders(typed)
        chosen: dict[str, Choice[CLKernel]] = {}
        for name, node in typed.items():
            if name in leaders:
                chosen[name] = chosen[leaders[name]]
            else:
                chosen[name] = self._chosen(node) if large else self._chosen_again(node)
                self._check_layouts(chosen[name].kernel, node)
        return chosen, leaders

    def _all_launches(
        self,
        graph: Graph,
        typed: Mapping[str, TypedNode],
        kernels: Mapping[str, CLKernel],
        leaders: Mapping[str, str],
    ) -> Mapping[str, Sequence[Launch]]:
        """The launches of each node, none for those without a kernel. Constants that they copy are let go.

        Those of nodes with the arrays of an earlier plan, and of nodes like these, were let go then.
        """
        found: dict[str, Sequence[Launch]] = {}
        leading, patterns = {*leaders.values()}, dict[str, Pattern]()
        readers: ConstantReaders | None = None
        for name, node in typed.items():
            pattern = patterns.get(leaders.get(name, ""))
            known = None if pattern is None else self._alike.launches(node, pattern)
            if known is None:
                made = self._launches(kernels[name], node) if name in kernels else ()
                known = _numbered([self._exact(launch, node) for launch in made if not launch.is_empty], name)
                if not self._alike.have_same_arrays(name, known):
                    readers = readers or ConstantReaders(graph)
                    readers.copied(_copied(node.node, known, graph))
                elif name in leading:
                    patterns[name] = pattern_of(node, known)
            found[name] = known
        return found

    def _share(self, graph: Graph) -> None:
        """After the programs of a plan were built: let others use them. A plan with states is run for each token of a text."""
        self._shared.hurried = self._hurries and not graph.states
        if self._packed is not self._shared:
            for key, found in self._packed.built_with.items():
                known = self._shared.built_with.setdefault(key, [])
                known += [one for one in found if one not in known]

    def _launches(self, kernel: CLKernel, node: TypedNode) -> tuple[Launch, ...]:
        try:
            return kernel.launches(node)
        except (cl.Error, MemoryError) as error:
            raise as_dovetail(error, f"{self.info.name}, node {node.node}: preparing the kernel {kernel.name!r}") from error

    def _tune(self, nodes: Iterable[tuple[CLKernel, TypedNode]]) -> None:
        with translated(f"tuning {self.info.name}"):
            tune(self._context, self._device, self.caps, ((k, n) for k, n in nodes if isinstance(k, Tuned)))

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        """All kernels that are asked for a node, in order."""
        key = node.op.package, node.op.stem
        with self._lock:
            if key not in self._bound:
                custom = (CustomLayerKernel(self._layers),) if len(self._layers) else ()
                asked = (*custom, View(), OwnKernel(), *listed(node.op))
                self._bound[key] = tuple(kernel.on(self.caps, self._packed) for kernel in asked)
            return self._bound[key]

    def _command(self, node: TypedNode, named: str, launch: Launch, kernel: CLKernel, dump: KernelDump | None) -> Command:
        try:
            if kernel.arguments_hint:
                check_source(launch, named)
            program = self.programs.get(launch, named)
        except CompileError as error:
            if dump is not None:
                dump.failed(node.op.op_type, launch, error)
            raise
        if dump is not None:
            dump.built(node.op.op_type, launch, program)
        if kernel.arguments_hint:  # those of this package are tested
            with translated(f"node {named}: looking at the kernels of {launch.file}"):
                check_signature(program, launch, named, kernel.arguments_hint)
        return Command(named, launch, program, node.name)

    def _exact(self, launch: Launch, node: TypedNode) -> Launch:
        """The launch, with quotients rounded right where a post-op divides: a quotient is a result that others round."""
        if not any(isinstance(p, Binary) and p.algorithm in ("div", "rdiv") for p in node.post_ops):
            return launch
        return dataclasses.replace(launch, options=tuple(dict.fromkeys((*launch.options, *self.caps.exact_options))))

    def _check_layouts(self, kernel: CLKernel, node: TypedNode) -> None:
        if not any(config.fits(node) for config in kernel.configurations(node)):
            given = ", ".join("-" if t is None else str(t) for t in (*node.inputs, *node.outputs, *node.operands))
            taken = f"the kernel {kernel.title(node)!r} takes it in other memory layouts than {given}"
            raise CompileError(f"{self.info.name}, node {node.node}: {taken}")

    def _choose(self, node: TypedNode) -> Choice[CLKernel] | Refusal:
        kernels = self.kernels(node)
        if self._packed.hurried:  # those that ran it are asked first
            kernels = tuple(sorted(kernels, key=lambda kernel: not self._packed.keeps(kernel.name, node)))
        return choose(kernels, node)

    def _chosen_again(self, node: TypedNode) -> Choice[CLKernel]:
        """The choice. Of a node that was compiled in other sizes only the kernels that decide by sizes are asked again."""
        types = tuple([_apart_from_sizes(t) for t in node.inputs])
        earlier, found = self._packed.choices.get(node.name), None
        if earlier is not None and earlier[0] is node.node and earlier[1] == types:
            found = self._confirmed(earlier[2], node)
        if found is None:
            found = self._chosen(node)
            if not self._packed.hurried or node.name not in self._packed.choices:  # those of the first plan stay
                self._packed.choices[node.name] = node.node, types, found
        return found

    def _confirmed(self, choice: Choice[CLKernel], node: TypedNode) -> Choice[CLKernel] | None:
        """The choice with the reasons for these sizes; None where they have another kernel."""
        refusals = []
        for kernel, (name, refusal) in zip(self.kernels(node), choice.refusals, strict=False):
            if not kernel.any_sizes(node) and kernel.applies(node) is None:
                refused = kernel.check(node)
                answer = kernel.supports(node) if refused is None else refused
                if isinstance(answer, Accepted):
                    return None
                refusal = answer
            refusals.append((name, refusal))
        if not choice.kernel.any_sizes(node) and choice.kernel.check(node) is not None:
            return None
        return Choice(choice.kernel, tuple(refusals), choice.answer)

    def _chosen(self, node: TypedNode) -> Choice[CLKernel]:
        choice = self._choose(node)
        if isinstance(choice, Refusal):
            raise CompileError(f"node {node.node} was not accepted by {self.info.name}: {choice}")
        return choice


def _apart_from_sizes(tensor: TensorType | None) -> object:
    """A type with its rank in place of the sizes where it is not constant. Without the content, which would stay in memory."""
    return tensor and (tensor.dtype, len(tensor.dims) if tensor.value is None else tensor.dims)


def _copied(node: Node, launches: Sequence[Launch], graph: Graph) -> Iterator[str]:
    """The constants that a node with these launches has copied: none that it reads in place."""
    arguments = [a for launch in launches for a in launch.places]
    in_place = {a.value for a in arguments if isinstance(a, Read)}
    copies = [a.array for a in arguments if isinstance(a, Constant)]
    for name in node.reads if arguments else ():  # a view has none, and is read in place
        array = graph.constants.get(name)
        if array is not None and name not in in_place and not any(np.may_share_memory(array, copy) for copy in copies):
            yield name


def _kept_states(graph: Graph) -> Mapping[str, int]:
    """The states of the graph that stay in buffers of the device: those continued by a result of a kernel."""
    computed = {name for node in graph.nodes if not node.op.is_view or node.post_ops for name in node.writes}
    return {n: i for n, i in graph.states.items() if graph.outputs[i] in computed and graph.types[n].size}


def _is_done(launch: Launch, memory: MemoryPlan) -> bool:
    """Whether it copies a value to where it is."""
    roots = [memory.storage.get(value, value) for value in launch.copies or ()]
    return len(roots) == 2 and roots[0] == roots[1]


def _numbered(launches: Sequence[Launch], node: str) -> list[Launch]:
    """The launches with the node's work buffers named as the memory plan does, in the order in which they are first used."""
    used = dict.fromkeys(a.value for launch in launches for a in launch.places if isinstance(a, Scratch))
    names = {value: f"scratch:{node}:{number}" for number, value in enumerate(used)}

    def renamed(launch: Launch) -> Launch:
        arguments = (dataclasses.replace(a, value=names[a.value]) if isinstance(a, Scratch) else a for a in launch.arguments)
        return dataclasses.replace(launch, arguments=tuple(arguments))

    return list(launches) if all(value == name for value, name in names.items()) else [renamed(launch) for launch in launches]


def _with_images(caps: Capabilities, context: Any) -> Capabilities:
    """Without images where the context has none of one float; OpenCL 1.2 asks only for those of four."""
    found = (
        cl.get_supported_image_formats(context, cl.mem_flags.READ_WRITE, cl.mem_object_type.IMAGE2D_ARRAY)
        if any(caps.image_size)
        else []
    )
    types = {f.channel_data_type for f in found if f.channel_order == cl.channel_order.R}
    usable = types >= {cl.channel_type.FLOAT, cl.channel_type.HALF_FLOAT}
    return caps if usable else dataclasses.replace(caps, image_size=(0, 0, 0))


def _report(node: TypedNode, choice: Choice[CLKernel]) -> NodeReport:
    kernel = choice.kernel
    # Kernels for all operators answer OPERATOR where they do not apply: not worth a line.
    tried = tuple((name, refusal) for name, refusal in choice.refusals if refusal.reason is not Reason.OPERATOR)
    return NodeReport(
        node.name,
        node.op.key,
        kernel.title(node),
        kernel.from_operator,
        kernel.chain(node),
        node.node.origins,
        tried,
    )
