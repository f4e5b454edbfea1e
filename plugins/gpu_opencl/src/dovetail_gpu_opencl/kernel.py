"""The base of all kernels of this package, and small arithmetic for NDRanges."""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from dovetail.device import (
    PLAIN,
    AbstractOperator,
    Accepted,
    Binary,
    DType,
    Graph,
    Kernel,
    LayerConfig,
    Node,
    Reason,
    Refusal,
    Sum,
    TensorType,
    TypedNode,
)
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.source import STORED_TYPES, missing_capability

__all__ = ["FLOATS", "CLKernel", "ceil_div", "check_types", "group_size", "one_float", "refuse_large", "round_up", "spread"]

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.FLOAT64})
_INT_MAX = 2**31 - 1


class CLKernel(Kernel):
    """A kernel: which nodes it runs, and as which launches. Written once, copied for each device by `on`."""

    caps: Capabilities
    packed: PackedConstants
    """The weights in the order of this package's kernels."""
    dtypes: ClassVar[frozenset[DType]] = FLOATS
    """The data types of inputs, outputs and post-op operands."""
    has_epilogue: ClassVar[bool] = True
    """True when the kernel applies post-ops."""
    from_operator: ClassVar[bool] = False
    arguments_hint: ClassVar[str] = ""
    """For kernels whose source is not this package's, and so is checked: the order of arguments, as errors explain it."""
    elementwise: ClassVar[bool] = False
    """True when element i of the result is made of the elements i of the inputs, so that any layout common to all will do."""
    computes: ClassVar[bool] = True
    """False for kernels that only move bytes: these need no C type and no extension for a data type."""

    joins_nodes: ClassVar[bool] = False
    """True when the kernel also runs several nodes in one launch."""
    half_by_load: ClassVar[bool] = False
    """True when float16 is only read by `vload_half` and written by `vstore_half`, which every device can (`source.storage`)."""
    halves_by_load: ClassVar[bool] = False
    """True when that holds for bfloat16 too, which is then accepted where float16 is."""
    mixes: ClassVar[bool] = False
    """True when inputs, operands and results may have different floating-point types, as far as `check` accepts them."""
    by_content: ClassVar[bool] = True
    """False when real numbers and bytes in constants decide nothing, in any sizes, but the arrays that launches are given."""

    def on(self, caps: Capabilities, packed: PackedConstants | None = None) -> Self:
        """This kernel for a device, and the models that share `packed`."""
        bound = copy.copy(self)
        bound.caps, bound.packed = caps, PackedConstants() if packed is None else packed
        return bound

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether this kernel runs the node as it is, its post-ops included."""
        refusal = self.applies(node)
        if refusal is None:  # not `or`: a refusal is false
            refusal = check_types(node, self.accepted, self.caps, self.computes, self.half_by_load or self.halves_by_load)
        if refusal is None and node.post_ops:
            refusal = post_ops.check(node) if self.has_epilogue else Refusal(Reason.POST_OP, f"{self.name} applies none")
        if refusal is None:
            refusal = self.check(node)
        return Accepted(self.title(node)) if refusal is None else refusal

    @property
    def accepted(self) -> frozenset[DType]:
        """`dtypes`, with bfloat16 where it is like float16."""
        return self.dtypes | {DType.BFLOAT16} if self.halves_by_load and DType.FLOAT16 in self.dtypes else self.dtypes

    def applies(self, node: TypedNode) -> Refusal | None:
        """Why this kernel is not for the node in any sizes: for kernels that are asked for every operator, and for few nodes."""
        return None

    def any_sizes(self, node: TypedNode) -> bool:
        """Whether `supports` answers the same for other sizes of what is not constant, but for those that are too large."""
        return False

    def check(self, node: TypedNode) -> Refusal | None:
        """The requirements of this kernel besides data types and post-ops."""
        return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which the kernel takes a node that it accepted, the best first."""
        return (LayerConfig.elementwise(node) if self.elementwise else LayerConfig.uniform(node, PLAIN),)

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        """The operator to put in place of the node's, a view, where the node moves nothing in the layouts of its types."""
        return None

    def title(self, node: TypedNode) -> str:
        """The name of the kernel in reports, for a node that it accepted."""
        return self.name

    @abstractmethod
    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        """The launches that compute a node that `supports` accepted, in order."""

    def loads_computed(self, node: TypedNode) -> bool:
        """Whether the kernel can compute the elements of input 0 where it loads them (`FusedElementwise`)."""
        return False

    def join_key(self, node: TypedNode) -> tuple[object, ...] | None:
        """Equal for nodes that this kernel may join; None for a node that it does not join."""
        return None

    def joined(self, graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
        """By name, what takes the place of some of these nodes of one key, in the order of the graph; None for nothing."""
        return {}

    def in_place(self, node: TypedNode) -> Sequence[str]:
        """Values in whose memory output 0 may be written: by default post-op operands that are read at the element written."""
        result = node.outputs[0]
        operands = zip((p for p in node.post_ops if hasattr(p, "operand")), node.operands, strict=True)
        return [p.operand for p, t in operands if isinstance(p, Sum | Binary) and is_like(t, result)]

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        """Outputs that may be written in the memory of an input, which is then a state of the graph, with these inputs."""
        return {}


def is_like(operand: TensorType, result: TensorType) -> bool:
    """True when the operand's elements have the positions of the result's."""
    return operand.dtype is result.dtype and operand.size == result.size


def check_types(
    node: TypedNode, dtypes: frozenset[DType], caps: Capabilities, computes: bool = True, half_by_load: bool = False
) -> Refusal | None:
    """Refuses types that are dynamic, not in `dtypes`, too large for int indices, or beyond the device's extensions."""
    if not node.is_static:
        return Refusal(Reason.DYNAMIC, ", ".join(str(t) for t in (*node.inputs, *node.outputs) if t and not t.is_static))
    for tensor in (*node.inputs, *node.outputs, *node.operands):
        if tensor is None:
            continue
        dtype = tensor.dtype
        if dtype not in dtypes or (computes and dtype not in STORED_TYPES):
            return Refusal(Reason.DTYPE, f"{dtype}")
        needs_none = not computes or (half_by_load and dtype is DType.FLOAT16)
        if not needs_none and (extension := missing_capability(dtype, caps)):
            return Refusal(Reason.CAPABILITY, f"{dtype} needs {extension}")
        if (refusal := refuse_large(tensor, caps)) is not None:
            return refusal
    return None


def one_float(node: TypedNode) -> Refusal | None:
    """Refuses several floating-point types, for kernels that read and write one: plans of other sizes have others mix them."""
    found = {t.dtype for t in (*node.inputs, *node.outputs, *node.operands) if t is not None and t.dtype.is_float}
    return Refusal(Reason.DTYPE, f"{' and '.join(sorted(map(str, found)))}; accepted: one") if len(found) > 1 else None


def refuse_large(tensor: TensorType, caps: Capabilities) -> Refusal | None:
    """Refuses a value that is too large for int indices or for a buffer of the device."""
    size = tensor.size
    if size > _INT_MAX:
        return Refusal(Reason.MEMORY, f"{tensor} has more than {_INT_MAX} elements")
    if size * tensor.dtype.itemsize > caps.max_allocation:
        return Refusal(Reason.MEMORY, f"{tensor} is larger than the device's largest buffer, {caps.max_allocation} bytes")
    return None


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of b that is not below a."""
    return ceil_div(a, b) * b


def group_size(caps: Capabilities, wanted: int) -> int:
    """The largest power of two that is at most `wanted` and that the device allows as a work-group size."""
    limit = min(wanted, caps.max_work_group_size, caps.max_work_item_sizes[0])
    return 1 << (max(1, limit).bit_length() - 1)


def spread(items: int, caps: Capabilities, wanted: int = 128) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Global and local size in one dimension for `items` work items; the last group may run past the end.

    On CPUs the local size does not depend on `items`: PoCL compiles a kernel once more for each.
    """
    local = group_size(caps, wanted if caps.kind == "CPU" else min(wanted, 1 << (max(1, items) - 1).bit_length()))
    return (round_up(items, local),), (local,)
