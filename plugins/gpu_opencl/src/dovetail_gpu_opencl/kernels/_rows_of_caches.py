"""Rows of the caches of attention: those before copied where they are not in place, and new ones written."""

from dovetail.device import DType
from dovetail_gpu_opencl.kernel import round_up
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.kernels._heads import Heads, NewRows
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Scratch, Write, ints
from dovetail_gpu_opencl.source import assemble

__all__ = ["copied", "written"]

_ITEMS = 64


def copied(src: Read | None, dst: Argument, outer: int, lengths: tuple[int, int], width: int, dtype: DType) -> Launch:
    """copy_rows.cl: [outer, lengths[0], width] to [outer, lengths[1], width], zeros behind."""
    before, after = lengths
    defines = {"T": WORDS[dtype.itemsize], "SHORT": before, "LONG": max(1, after), "WIDTH": max(1, width)}
    size = outer * after * width
    arguments = (src if before and src is not None else Null(), dst, *ints(size))
    in_place = (src.value, dst.value) if src is not None and isinstance(dst, Write) and before == after else None
    work = (round_up(size, _ITEMS),)
    return Launch("copy_rows.cl", assemble("copy_rows.cl", defines), "copy_rows", arguments, work, (_ITEMS,), copies=in_place)


def written(heads: Heads, new: NewRows, rows: int, turned: Scratch | None = None) -> Launch:
    """cached_attention_write.cl: `rows` new keys and values of each sample, and turned queries to `turned`."""
    s = heads.sizes
    defines = {**heads.defines, **new.defines, "QUERIES": rows, "TURN_QUERIES": turned is not None}
    queries: tuple[Argument, ...] = () if turned is None else (heads.query, turned)
    arguments = (*new.arguments, heads.key, heads.value, *queries, *new.turning, *heads.counts, *new.faults)
    elements = (s.heads * s.head if turned is not None else 0) + s.kv_heads * (s.head + s.v_head)
    source = assemble("cached_attention_write.cl", defines)
    work = (round_up(elements, _ITEMS), rows, s.batch)
    return Launch("cached_attention_write.cl", source, "cached_attention_write", arguments, work, (_ITEMS, 1, 1))
