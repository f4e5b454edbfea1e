"""Translates chains of post-ops into oneDNN's: algorithms, order, and the operands that they read."""

from collections.abc import Iterable, Sequence
from math import prod

from dovetail.dataclass import dataclass
from dovetail.device import Binary, Eltwise, PostOp, Prelu, Reason, Sum, TensorType, TypedNode
from dovetail_cpu_onednn.binding import Arg, Attr, MemoryDesc, PrimitiveDesc
from dovetail_cpu_onednn.descriptors import describe, number_of, plain, undecided
from dovetail_cpu_onednn.kernel import Argument, Refused, Stage
from dovetail_cpu_onednn.library import library

__all__ = [
    "BINARY",
    "ELTWISE",
    "Appended",
    "Chain",
    "attach",
    "eltwise_kind",
    "is_one_element_a_channel",
    "require_no_columns",
    "times",
]

ELTWISE = {
    "relu": 0x20,
    "tanh": 0x21,
    "elu": 0x22,
    "square": 0x23,
    "abs": 0x24,
    "sqrt": 0x25,
    "linear": 0x26,
    "hardsigmoid": 0x28,
    "logistic": 0x29,
    "exp": 0x2A,
    "gelu_tanh": 0x2B,
    "swish": 0x2C,
    "clip": 0x2E,
    "pow": 0x30,
    "gelu_erf": 0x31,
    "round": 0x32,
    "hardswish": 0x34,
}
"""The eltwise algorithms that oneDNN has, with its numbers. Left out: log, wrong by 3e-6 round 1; soft_relu and mish,
which have no right digit below about -15 (measured against float64)."""

LARGEST = 3.4028234663852886e38
"""The largest float32."""

LOSES_NAN = frozenset({"exp", "hardsigmoid"})
"""The eltwise algorithms that give numbers for NaN and are rare enough to stay out of chains. So does clip: see `bounds`."""

BINARY = {"add": 0x1FFF0, "mul": 0x1FFF1, "div": 0x1FFF4, "sub": 0x1FFF5}
"""The binary algorithms that oneDNN has, with its numbers. Its max and min are left out: they lose NaN."""

Appended = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class Chain:
    """A chain under construction: what is appended, and the arguments that go with it; `shared` as in `NodePlan`."""

    appended: list[Appended]
    reads: list[tuple[int, int, MemoryDesc, bool]]
    shared: int | None = None

    @property
    def operands(self) -> Iterable[MemoryDesc]:
        """The descriptors of what the chain reads."""
        return (desc for _, _, desc, _ in self.reads)

    @property
    def attr(self) -> Attr:
        """The attributes of the primitive."""
        return library().attr(self.appended)

    def arguments(self, desc: PrimitiveDesc) -> tuple[Argument, ...]:
        """The operands of the chain, in the layouts that the primitive takes."""
        found = []
        for arg, index, md, flexible in self.reads:
            wanted = library().taken(desc, arg, md) if flexible else md
            found.append(Argument(arg, "operand", index, wanted, flexible=flexible))
        return tuple(found)

    def stages(self, desc: PrimitiveDesc, arguments: Sequence[Argument], dst: MemoryDesc) -> tuple[Stage, ...]:
        """The primitive, after a copy of the operand that the result must start from, if there is one."""
        main = Stage(desc, (*arguments, *self.arguments(desc)))
        if self.shared is None:
            return (main,)
        copy = library().describe_reorder(dst, dst)
        moves = (
            Argument(Arg.SRC, "operand", self.shared, dst, flexible=True),
            Argument(Arg.DST, "output", 0, dst, flexible=True),
        )
        return (Stage(copy, moves, unless_shared=self.shared), main)


def attach(
    node: TypedNode,
    free: bool,
    shared: bool,
    *,
    before: Sequence[Appended] = (),
    dims: Sequence[int] | None = None,
    sums: bool = False,
    plain_relu: bool = False,
) -> Chain:
    """The node's post-ops behind `before`. Raises `Refused` for what oneDNN does not have.

    `dims` are those of the primitive's result when it takes the node's under another shape. `sums`: the primitive
    takes sum and prelu too. `plain_relu`: it takes no other eltwise than relu, which gives 0 for NaN.
    """
    result = node.outputs[0]
    shape = tuple(result.dims if dims is None else dims)
    chain = Chain(list(before), [])
    operands = iter(enumerate(node.operands))
    for post_op in node.post_ops:
        if isinstance(post_op, Eltwise):
            chain.appended += eltwise_kind(post_op if plain_relu else _keeping_nan(post_op))
        else:
            index, operand = next(operands)
            if isinstance(post_op, Sum | Prelu) and not sums:
                raise Refused(Reason.POST_OP, f"oneDNN's primitive takes no {post_op.kind}")
            _append(chain, post_op, index, operand, result, shape, free and dims is None, shared)
    return chain


def _keeping_nan(post_op: Eltwise) -> Eltwise:
    """The same as a post-op that leaves NaN as it is. Raises `Refused` for what has no such form.

    relu becomes s * max(0, min(1, LARGEST * s)), which is as fast (within 3 % on the convolutions of ResNet-50, one thread) and
    differs in this: -infinity gives NaN (see `fused_steps`), and negative numbers give -0. The elu of slope 0 gives 0 for
    -infinity as well, but costs up to 15 %.
    """
    if post_op.algorithm == "relu" and post_op.alpha == 0:
        return Eltwise("hardswish", LARGEST, 0.0, post_op.scale)
    if post_op.algorithm in LOSES_NAN:
        raise Refused(Reason.POST_OP, f"oneDNN's {post_op.algorithm} gives a number for NaN")
    return post_op


def eltwise_kind(post_op: Eltwise) -> list[Appended]:
    """One eltwise as what has to be appended for it. Raises `Refused`."""
    if post_op.algorithm not in ELTWISE:
        raise Refused(Reason.POST_OP, f"oneDNN has no eltwise {post_op.algorithm}")
    found: list[Appended] = [("eltwise", (ELTWISE[post_op.algorithm], post_op.alpha, post_op.beta))]
    if post_op.scale != 1:
        found.append(times(post_op.scale))
    return found


def times(factor: float) -> Appended:
    """A factor as a step. The offset -0.0 leaves the sign of 0 as it is, and is not taken for another one: oneDNN's cache of
    primitives holds 0.0 and -0.0 for equal.
    """
    return "eltwise", (ELTWISE["linear"], factor, -0.0)


def require_no_columns(dst: MemoryDesc, operands: Iterable[MemoryDesc]) -> None:
    """Raise `Refused` for an operand along the last axis behind a binary primitive whose result is not plain.

    For these oneDNN 3.2 and 3.7 have only the reference. With channels last, the jit kernel of 3.12.1 takes the numbers of the
    operand along the channels, not along the last axis.
    """
    if len(dst.dims) < 3 or library().equal(dst, plain(dst.dims, dst.dtype)):
        return
    for desc in operands:
        if prod(desc.dims) == desc.dims[-1] > 1:
            raise Refused(Reason.POST_OP, f"an operand {list(desc.dims)} along the last axis of a result that is not plain")


def is_one_element_a_channel(dims: Sequence[int]) -> bool:
    """Whether a result of three or more dimensions has one element in each channel.

    For [N, C, 1, ...] that is plain or has its channels last, oneDNN 3.2's jit kernels of binary and resampling take an operand
    [1, C, 1, ...] of a post-op as constant along a vector, which here holds several channels (measured on all shapes with sizes
    1, 2, 3 and 17 up to rank 5: wrong for binary with N > 1 and for resampling with N = 1, by SSE 4.1, AVX2 and AVX-512 alike).
    """
    return len(dims) > 2 and set(dims[2:]) == {1}


def _append(
    chain: Chain,
    post_op: PostOp,
    index: int,
    operand: TensorType,
    result: TensorType,
    shape: tuple[int, ...],
    free: bool,
    shared: bool,
) -> None:
    if _takes_over(chain, post_op, operand, result, shared):
        scale, zero = (post_op.scale, post_op.zero_point) if isinstance(post_op, Sum) else (1.0, 0)
        if zero:
            raise Refused(Reason.POST_OP, "sum with a zero point in float32")
        chain.appended.append(("sum", (scale, 0, 0)))
        chain.shared = index
        return
    if isinstance(post_op, Sum):
        raise Refused(Reason.POST_OP, f"a second sum, or {operand} for a result {result}")
    full = operand.dims == result.dims
    desc = _operand(operand, result, shape, free, full)
    if isinstance(post_op, Prelu):
        _append_prelu(chain, index, operand, desc)
        return
    assert isinstance(post_op, Binary)
    algorithm = post_op.algorithm
    if algorithm == "rsub":
        chain.appended.append(times(-1.0))
        algorithm = "add"
    if algorithm not in BINARY:
        raise Refused(Reason.POST_OP, f"oneDNN has no binary {algorithm}")
    chain.reads.append((Arg.post_op(len(chain.appended), Arg.SRC_1), index, desc, full and free))
    chain.appended.append(("binary", (BINARY[algorithm], desc)))


def _takes_over(chain: Chain, post_op: PostOp, operand: TensorType, result: TensorType, shared: bool) -> bool:
    """Whether oneDNN's sum adds the operand; the result is then written into the operand's memory."""
    adds = isinstance(post_op, Sum) or (isinstance(post_op, Binary) and post_op.algorithm == "add" and shared)
    return adds and chain.shared is None and operand == result


def _append_prelu(chain: Chain, index: int, operand: TensorType, desc: MemoryDesc) -> None:
    # The weights are plain, whatever the layout of the result: sizes along other axes than the channels' would not fit it.
    if any(size != 1 for axis, size in enumerate(desc.dims) if axis != 1):
        raise Refused(Reason.POST_OP, f"prelu with {operand}; accepted: one slope, or one for each channel")
    mask = sum(1 << axis for axis, size in enumerate(desc.dims) if size != 1)
    chain.reads.append((Arg.post_op(len(chain.appended), Arg.WEIGHTS), index, plain(desc.dims, desc.dtype), False))
    chain.appended.append(("prelu", (mask,)))


def _operand(operand: TensorType, result: TensorType, shape: tuple[int, ...], free: bool, full: bool) -> MemoryDesc:
    """The descriptor of an operand of the rank of the primitive's result."""
    if full and shape == result.dims:
        return undecided(operand) if free else describe(operand)
    if full:
        return plain(shape, number_of(operand.dtype))
    dims = (1,) * (result.rank - operand.rank) + operand.dims
    if shape == result.dims[: len(shape)] and set(result.dims[len(shape) :]) <= {1}:
        dims = dims[: len(shape)]
    elif shape != result.dims:
        if any(size != 1 for size in dims[:-1]) or dims[-1] not in (1, shape[-1]):
            raise Refused(Reason.POST_OP, f"operand {operand} for a result {result} that is computed as {list(shape)}")
        dims = (1,) * (len(shape) - 1) + dims[-1:]
    return plain(dims, number_of(operand.dtype))
