"""Reductions, cumulations, and what works along an axis."""

import numpy as np

from random_graphs.builder import Builder, Draft, makes

_REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@makes(*(f"Reduce{name}" for name in _REDUCTIONS))
def reduce(b: Builder) -> Draft:
    name = b.value(b.types())
    rank = b.array(name).ndim
    axes = [int(a) for a in b.rng.permutation(rank)[: b.integer(1, rank)]] if rank and b.chance(0.8) else None
    if axes and b.version >= 11:
        axes = [a - rank if b.chance(0.3) else a for a in axes]
    keep = b.integer(0, 1)
    if b.has("axes"):
        return Draft([name], {"axes": axes, "keepdims": keep})
    given = "" if axes is None else b.constant(axes, np.int64) if b.chance(0.8) else b.data(np.array(axes, np.int64))
    return Draft([name, given], {"keepdims": keep, "noop_with_empty_axes": b.integer(0, 1)})


@makes("ArgMax", "ArgMin")
def arg(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4), fits=lambda a: 0 not in a.shape, shape=lambda rank: (3, 2, 4, 2)[:rank])
    return Draft([name], {"axis": b.axis(b.array(name).ndim), "keepdims": b.integer(0, 1), "select_last_index": b.integer(0, 1)})


@makes("CumSum", "CumProd")
def cumulate(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    axis = b.data(np.array(b.axis(b.array(name).ndim), b.one([np.int32, np.int64])))
    return Draft([name, axis], {"exclusive": b.integer(0, 1), "reverse": b.integer(0, 1)})


@makes("TopK")
def top_k(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    rank = b.array(name).ndim
    axis = b.axis(rank)
    k = b.integer(0 if b.version >= 10 else 1, b.array(name).shape[axis]) if b.array(name).shape[axis] else 0
    attributes = {"axis": axis, "largest": b.integer(0, 1), "sorted": 1, "k": k}
    return Draft([name] if b.has("k") else [name, b.data(np.array([k], np.int64))], attributes, 2)


@makes("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def along_axis(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    rank = b.array(name).ndim
    attributes = {"axis": b.axis(rank) if rank < 2 or b.chance(0.8) else None, "p": b.integer(1, 2)}
    if b.version < 13 and b.op != "LpNormalization" and rank < 2:
        attributes["axis"] = 0
    return Draft([name], attributes)


@makes("MeanVarianceNormalization")
def mean_variance(b: Builder) -> Draft:
    name = b.value(b.types(), (4,))
    return Draft([name], {"axes": b.one([None, [0, 2, 3], [1, 2], [3]])})


@makes("Unique")
def unique(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2), fits=lambda a: a.size > 0, shape=lambda rank: (5, 3)[:rank])
    return Draft([name], {"axis": b.one([None, b.axis(b.array(name).ndim)]), "sorted": b.integer(0, 1)}, b.one([1, 4]))


@makes("Einsum")
def einsum(b: Builder) -> Draft:
    name = b.value(b.types(), (2,))
    _rows, columns = b.array(name).shape
    kind = b.integer(0, 3)
    if kind == 0:
        return Draft(
            [name, b.like(name, (columns, 3))], {"equation": b.one(["ij,jk->ik", "ij,jk", "ij,jk->ki", "...j,jk->...k"])}
        )
    if kind == 1:
        return Draft([name, b.like(name)], {"equation": b.one(["ij,ij->", "ij,ij->i", "ij,ij->ji"])})
    return Draft([name], {"equation": b.one(["ij->ji", "ij->j", "ij->", "ba"])})


@makes("Det")
def det(b: Builder) -> Draft:
    square = b.value(b.types(), (2, 3), fits=lambda a: a.shape[-1] == a.shape[-2] > 0, shape=lambda rank: (2, 3, 3)[-rank:])
    return Draft([square])


@makes("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(b: Builder) -> Draft:
    n, c = b.integer(1, 4), b.integer(2, 5)
    extra = b.one([(), (3,), (2, 3)])
    scores = b.fresh(b.one(b.types()), (n, c, *extra))
    target = b.data(b.rng.integers(0, c, (n, *extra)).astype(b.one([np.int32, np.int64])))
    weight = b.data(b.rng.uniform(0.1, 2, c).astype(b.array(scores).dtype)) if b.chance(0.5) else ""
    ignore = b.integer(0, c - 1) if b.chance(0.3) else None
    return Draft([scores, target, weight], {"reduction": b.one(["none", "mean", "sum"]), "ignore_index": ignore})
