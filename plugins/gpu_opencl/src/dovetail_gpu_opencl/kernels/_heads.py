"""Attention of queries to keys and values in any strides: the launches for many queries and for one, on GPUs and on CPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.device import DType, TensorType, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, round_up
from dovetail_gpu_opencl.launch import Argument, Counters, Fault, Launch, Scratch
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, accumulator, accumulator_bytes, assemble, literal, storage
from dovetail_ops_onnx.attention import Sizes

__all__ = [
    "SIZES",
    "Heads",
    "Lengths",
    "Mask",
    "NewRows",
    "Rotation",
    "blocks_of",
    "by_blocks",
    "by_rows",
    "keys_of",
    "one_query",
    "steps",
]

SIZES = ("QUERIES", "TOTAL", "PAST", *(f"{letter}_{axis}" for letter in "QKVY" for axis in "BHS"), "M_B", "M_H", "M_S", "M_LAST")
"""The numbers of heads.cl that change with batches and lengths."""
_LANES, _ROWS = 32, 4
_MOST_QUERIES = 128
_PRIVATE_BYTES = 256 * 1024
"""Bytes that a work item on a CPU may have on its stack."""
_TOKEN_GROUP, _TOKEN_TILES, _TOKEN_KEYS = 256, (64, 32), 64
_MOST_SHARED = 16
"""Heads with common keys that one group takes: each has sums in registers of every item."""
_MOST_SPLITS = 32


@dataclass(frozen=True)
class Mask:
    """A mask: added to the scores, or true where they count. Its last dimension is that of the keys, the others broadcast."""

    argument: Argument
    given: TensorType

    @property
    def defines(self) -> dict[str, object]:
        dims = (1,) * (4 - self.given.rank) + self.given.dims
        pitches = [0 if d == 1 else step for d, step in zip(dims, strides_of(dims), strict=True)]
        # The step between keys is that of one of a single key, too, which M_LAST bounds.
        found: dict[str, object] = dict(zip(("M_B", "M_H", "M_S", "M_K"), (*pitches[:3], 1), strict=True))
        is_bool = self.given.dtype is DType.BOOL
        return found | storage(self.given.dtype, "MASK_T") | {"HAS_MASK": True, "MASK_BOOL": is_bool, "M_LAST": dims[3] - 1}


@dataclass(frozen=True)
class Lengths:
    """How many keys of each sample count: `more` than the numbers say. `filled`: see heads.cl."""

    argument: Argument
    dtype: DType
    more: int = 0
    filled: bool = False

    @property
    def defines(self) -> dict[str, object]:
        return {"LENGTH_T": C_TYPES[self.dtype], "MORE": self.more, "FILLED": self.filled}


@dataclass(frozen=True)
class Rotation:
    """Cosines, sines and, if given, rows in them; `pairs` of elements are turned by `angles` rows."""

    arguments: tuple[Argument, ...]
    pairs: int
    angles: int
    interleaved: bool

    @property
    def defines(self) -> dict[str, object]:
        ids = len(self.arguments) > 2
        return {"PAIRS": self.pairs, "ANGLES": self.angles, "INTERLEAVED": self.interleaved, "HAS_IDS": ids}


@dataclass(frozen=True)
class NewRows:
    """New keys and values, where they are in their buffers, and what they are turned by. `fault`: for counts out of range."""

    arguments: tuple[Argument, Argument]
    pitches: Mapping[str, int]
    rotation: Rotation | None = None
    fault: Fault | None = None

    @property
    def faults(self) -> tuple[Argument, ...]:
        return () if self.fault is None else (self.fault,)

    @property
    def turning(self) -> tuple[Argument, ...]:
        return () if self.rotation is None else self.rotation.arguments

    @property
    def defines(self) -> dict[str, object]:
        return {**self.pitches, **(self.rotation.defines if self.rotation else {})}


@dataclass(frozen=True)
class Heads:
    """One attention. `pitches` has the strides Q_B to Y_S; `window` how many keys a query sees before and after its position."""

    sizes: Sizes
    dtype: DType
    query: Argument
    key: Argument
    value: Argument
    result: Argument
    pitches: Mapping[str, int]
    scale: float
    softcap: float = 0.0
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    mask: Mask | None = None
    lengths: Lengths | None = None
    named: str = ""
    """The name of the node, for work buffers."""

    @property
    def defines(self) -> dict[str, object]:
        s, acc = self.sizes, accumulator(self.dtype)
        found: dict[str, object] = {**storage(self.dtype), "ACC": acc, "HEADS": s.heads, "SHARE": s.heads // s.kv_heads}
        found |= {"KV": s.kv_heads, "QUERIES": s.queries, "TOTAL": s.total, "PAST": s.past, "D": s.head, "DV": s.v_head}
        found |= {"SCALE": literal(self.scale, acc), "CAUSAL": self.causal, **self.pitches}
        if self.softcap:
            found["SOFTCAP"] = literal(self.softcap, acc)
        for name, reach in zip(("LEFT", "RIGHT"), self.window, strict=True):
            found |= {name: reach} if reach >= 0 else {}
        for part in (self.mask, self.lengths):
            found |= {} if part is None else part.defines
        return found

    @property
    def masks(self) -> tuple[Argument, ...]:
        return () if self.mask is None else (self.mask.argument,)

    @property
    def counts(self) -> tuple[Argument, ...]:
        return () if self.lengths is None else (self.lengths.argument,)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Those of attention.cl and attention_rows.cl."""
        return self.query, self.key, self.value, *self.masks, *self.counts, self.result


def steps(letter: str, heads: int, length: int, size: int, flat: bool) -> dict[str, int]:
    """Elements from one batch, head and position to the next, of [B, length, heads * size] or [B, heads, length, size]."""
    head, position = (size, heads * size) if flat else (length * size, size)
    return {f"{letter}_B": heads * length * size, f"{letter}_H": head, f"{letter}_S": position}


# --- many queries --------------------------------------------------------------------------------------------------------


def by_blocks(heads: Heads, kernel: CLKernel, node: TypedNode) -> Launch:
    """attention.cl, for GPUs; `blocks_of` accepts it."""
    blocks, s = blocks_of(heads.sizes, heads.dtype, kernel.caps), heads.sizes
    assert blocks is not None
    local_q, keys = kernel.packed.settled("attention", node, blocks)
    items = _LANES * local_q
    work = (ceil_div(s.queries, _ROWS * local_q) * items, s.heads, s.batch)
    defines, sizes = by_value(heads.defines, SIZES)
    aligned = {f"{letter}_ALIGNED": _aligned(heads.pitches, letter, size) for letter, size in (("K", s.head), ("V", s.v_head))}
    source = assemble("attention.cl", {**defines, **aligned, "LOCAL_Q": local_q, "KEYS": keys})
    return Launch("attention.cl", source, "attention", (*heads.arguments, *sizes), work, (items, 1, 1))


def _aligned(pitches: Mapping[str, int], letter: str, size: int) -> bool:
    return all(number % 4 == 0 for number in (size, *(pitches[f"{letter}_{axis}"] for axis in "SHB")))


def blocks_of(s: Sizes, dtype: DType, caps: Capabilities) -> tuple[int, int] | None:
    """LOCAL_Q and KEYS: many queries a group where these are many, and as many keys as fit; None when nothing fits."""
    itemsize = accumulator_bytes(dtype)
    many = s.batch * s.heads * ceil_div(s.queries, 8 * _ROWS) >= 4 * caps.compute_units
    for local_q in (8, 4) if many else (4,):
        for keys in (4, 2, 1):
            rows, width = _ROWS * local_q, round_up(s.head, 4)
            local = rows * (width + _LANES) + _LANES * keys * (max(width + 4, rows) + round_up(s.v_head, 4))
            wasted = keys > 1 and _LANES * keys >= 2 * s.total
            if not wasted and local * itemsize <= caps.local_memory and _LANES * local_q <= caps.max_work_group_size:
                return local_q, keys
    return None


def by_rows(heads: Heads, caps: Capabilities) -> Launch:
    """attention_rows.cl, for CPUs; `keys_of` accepts it."""
    s, block = heads.sizes, _queries(heads.sizes, caps)
    lanes = caps.lanes(accumulator(heads.dtype))
    defines, sizes = by_value({**heads.defines, "BLOCK_Q": block}, (*SIZES, "BLOCK_Q"))
    defines |= {"MOST_Q": _MOST_QUERIES, "KEYS": keys_of(s, heads.dtype, caps), "VECTORS": _vectors(caps), "VEC": lanes}
    work = (ceil_div(s.queries, block), s.heads, s.batch)
    source = assemble("attention_rows.cl", defines)
    return Launch("attention_rows.cl", source, "attention_rows", (*heads.arguments, *sizes), work, (1, 1, 1))


def _vectors(caps: Capabilities) -> int:
    """Vectors of sums for each of 4 rows, so that registers hold them."""
    return 4 if caps.vector_registers >= 32 else 2


def _queries(s: Sizes, caps: Capabilities) -> int:
    """As many as leave work for all cores, since each block copies the keys and values again."""
    block = min(_MOST_QUERIES, max(_ROWS, 1 << (s.queries - 1).bit_length()))
    while block > 16 and s.batch * s.heads * ceil_div(s.queries, block) < 4 * caps.compute_units:
        block //= 2
    return block


def keys_of(s: Sizes, dtype: DType, caps: Capabilities) -> int | None:
    """The most keys of a block whose copies fit; None when even the fewest do not."""
    columns = _vectors(caps) * caps.lanes(accumulator(dtype))
    itemsize, width = accumulator_bytes(dtype), round_up(s.v_head, columns)
    for keys in (4 * columns, 2 * columns, columns):
        if itemsize * (keys * (s.head + width + _ROWS) + _MOST_QUERIES * (width + 2)) <= _PRIVATE_BYTES:
            return keys
    return None


# --- one query -----------------------------------------------------------------------------------------------------------


def one_query(heads: Heads, caps: Capabilities, new: NewRows | None = None) -> Launch | None:
    """attention_token.cl or attention_token_rows.cl; None where there are more queries, or heads that they do not take.

    With `new` it writes a new key and value first.
    """
    s = heads.sizes
    if s.queries != 1:
        return None
    defines = heads.defines if new is None else {**heads.defines, **new.defines, "NEW": True}
    given = (heads.query, *(() if new is None else new.arguments), heads.key, heads.value, *heads.masks)
    given = (*given, *(() if new is None else new.turning), *heads.counts, heads.result)
    faults = () if new is None else new.faults
    return (
        _token_rows(heads, caps, defines, (*given, *faults))
        if caps.kind == "CPU"
        else _token(heads, caps, defines, given, faults)
    )


def _token_rows(heads: Heads, caps: Capabilities, defines: dict[str, object], arguments: tuple[Argument, ...]) -> Launch | None:
    s, acc = heads.sizes, accumulator(heads.dtype)
    if (s.head + s.v_head + _TOKEN_KEYS) * accumulator_bytes(heads.dtype) > _PRIVATE_BYTES:
        return None
    source = assemble("attention_token_rows.cl", defines | {"KEYS": _TOKEN_KEYS, "VEC": caps.lanes(acc)})
    return Launch("attention_token_rows.cl", source, "attention_token_rows", arguments, (s.heads, s.batch), (1, 1))


def _token(
    heads: Heads, caps: Capabilities, defines: dict[str, object], given: Sequence[Argument], faults: Sequence[Argument]
) -> Launch | None:
    s, itemsize, share = heads.sizes, accumulator_bytes(heads.dtype), heads.sizes.heads // heads.sizes.kv_heads
    width, lines = round_up(s.head, 4), _TOKEN_GROUP // max(1, s.v_head)
    sums = lines * share * (s.v_head + 1) + share * (width + 1) + 1
    tiles = [t for t in _TOKEN_TILES if (t * (width + 4) + share * t + sums) * itemsize <= caps.local_memory]
    if not tiles or not lines or share > _MOST_SHARED or caps.max_work_group_size < _TOKEN_GROUP:
        return None
    cells, splits = s.batch * s.kv_heads, _splits(s, tiles[0], caps)
    if splits > 1:
        part = Scratch(f"scratch:{heads.named}:0", cells * splits * share * (s.v_head + 2) * itemsize)
        given = (*given, part, Counters(cells))
    defines |= {"GROUP": _TOKEN_GROUP, "TILE": tiles[0], "SPLITS": splits}
    defines |= {"FENCE": 'asm volatile("membar.gl;" ::: "memory")'} if caps.ptx else {}
    work = (splits * _TOKEN_GROUP, s.kv_heads, s.batch)
    source = assemble("attention_token.cl", defines)
    return Launch("attention_token.cl", source, "attention_token", (*given, *faults), work, (_TOKEN_GROUP, 1, 1))


def _splits(s: Sizes, tile: int, caps: Capabilities) -> int:
    """As many groups for the keys of a head as keep the device busy, where they can see each other's results.

    OpenCL 1.2 has no fence for that. A unit of an H200 runs several groups at once.
    """
    if not caps.ptx:
        return 1
    each = 2 * caps.compute_units // max(1, s.batch * s.kv_heads)
    return max(1, min(_MOST_SPLITS, ceil_div(s.total, tile), each))
