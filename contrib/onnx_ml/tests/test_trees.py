"""Trees against a walk in plain Python: every test, special values, sizes of all blocks, sums in the order of the trees."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail_ops_onnx_ml import _ensemble, _tree_walk
from dovetail_ops_onnx_ml.tree_ensemble import TreeEnsemble
from dovetail_ops_onnx_ml.tree_ensemble_classifier import TreeEnsembleClassifier_1
from dovetail_ops_onnx_ml.tree_ensemble_regressor import TreeEnsembleRegressor_1, TreeEnsembleRegressor_3

Array = NDArray[Any]
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
HOLDS = dict(zip(MODES, (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal), strict=True))
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45)
FEATURES = 5
NAMES = ("modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")


def tree(rng: np.random.Generator, modes: tuple[str, ...], depth: int) -> list[tuple[Any, ...]]:
    """Nodes (mode, feature, value, true, false, tracks): unbalanced, every second value a special one."""
    nodes: list[tuple[Any, ...]] = [()]
    leaf = ("LEAF", 0, 0.0, 0, 0, 0)
    waiting = [(0, depth)]
    while waiting:
        place, left = waiting.pop()
        if left == 0 or (place and rng.random() < 0.2):
            nodes[place] = leaf
            continue
        yes, no = len(nodes), len(nodes) + 1
        nodes += [(), ()]
        value = float(rng.choice(SPECIAL)) if rng.random() < 0.5 else float(np.float32(rng.standard_normal()))
        nodes[place] = (str(rng.choice(modes)), int(rng.integers(FEATURES)), value, yes, no, int(rng.integers(2)))
        waiting += [(yes, left - 1), (no, left - 1)]
    return nodes


def forest(
    rng: np.random.Generator, modes: tuple[str, ...] = MODES, trees: int = 7, depth: int = 8
) -> list[list[tuple[Any, ...]]]:
    """The last tree is a leaf."""
    return [*(tree(rng, modes, depth) for _ in range(trees - 1)), [("LEAF", 0, 0.0, 0, 0, 0)]]


def attributes(rng: np.random.Generator, trees: list[list[tuple[Any, ...]]]) -> tuple[dict[str, Any], dict[int, int]]:
    """`nodes_...` in any order, with numbers of trees and nodes that have gaps; and the numbers of the trees."""
    names = {t: int(name) for t, name in enumerate(rng.permutation(50)[: len(trees)] - 20)}
    rows = [(names[t], 3 * k - 7, *node) for t, nodes in enumerate(trees) for k, node in enumerate(nodes)]
    # Trees add up in the order of their roots.
    roots = [i for i, row in enumerate(rows) if row[1] == -7]
    rows = [rows[i] for i in [*roots, *rng.permutation([i for i in range(len(rows)) if i not in roots])]]
    columns = {f"nodes_{name}": column for name, column in zip(NAMES, list(zip(*rows, strict=True))[2:], strict=True)}
    for side in ("nodes_truenodeids", "nodes_falsenodeids"):
        columns[side] = tuple(3 * k - 7 for k in columns[side])
    return {"nodes_treeids": tuple(r[0] for r in rows), "nodes_nodeids": tuple(r[1] for r in rows), **columns}, names


def reached(nodes: list[tuple[Any, ...]], x: Array) -> int:
    at = 0
    while nodes[at][0] != "LEAF":
        mode, feature, value, yes, no, tracks = nodes[at]
        given = x[feature]
        at = yes if HOLDS[mode](given, np.float32(value)) or (tracks and math.isnan(given)) else no
    return at


def samples(rng: np.random.Generator, count: int, dtype: Any) -> Array:
    x = rng.standard_normal((count, FEATURES))
    x = np.where(rng.random(x.shape) < 0.4, rng.choice(SPECIAL, size=x.shape), x).astype(dtype)
    x.flags.writeable = False
    return x


@pytest.fixture(params=["blocks", "small blocks", "entries", "all tests", "by hand"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The sizes that choose between ways: as they are, such that each way is taken for some samples, or one of them alone."""
    name = str(request.param)
    if name == "small blocks":
        for module, constant, value in (
            (_ensemble, "_WALKS", 40),
            (_ensemble, "_SAMPLES", 7),
            (_tree_walk, "_TOP_ROWS", 2),
            (_tree_walk, "_FEW", 0),
            (_tree_walk, "_TESTS", 0),
        ):
            monkeypatch.setattr(module, constant, value)
    if name == "entries":
        monkeypatch.setattr(_ensemble, "_DENSE", 0)
        monkeypatch.setattr(_ensemble, "_SPARSE", 0)
        monkeypatch.setattr(_tree_walk, "_EVERY", 1)
    if name == "all tests":
        monkeypatch.setattr(_tree_walk, "_TESTS", 10**9)
    monkeypatch.setattr(_tree_walk, "_BY_HAND", {"by hand": 10**9, "blocks": _tree_walk._BY_HAND}.get(name, 0))
    return name


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), MODES], ids=["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "all"])
def test_sums_are_those_of_a_walk_tree_by_tree(rng: np.random.Generator, modes: tuple[str, ...], dtype: Any) -> None:
    """Bit by bit: sums are made in the type of X in the order of the trees."""
    trees = forest(rng, modes)
    given, names = attributes(rng, trees)
    held = [
        (names[t], 3 * k - 7, target, float(np.float32(rng.standard_normal())))
        for t, nodes in enumerate(trees)
        for k, node in enumerate(nodes)
        for target in ((0, 2) if node[0] == "LEAF" else ())
    ]
    weights = {(t, k, target): dtype(weight) for t, k, target, weight in held}
    columns = zip(*(held[i] for i in rng.permutation(len(held))), strict=True)
    leaves = {f"target_{name}": column for name, column in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)}
    op = TreeEnsembleRegressor_1(**given, **leaves, n_targets=3)
    for count in (0, 1, 2, 9, 130):
        x = samples(rng, count, dtype)
        want = np.zeros((count, 3), dtype)
        for row, sums in zip(x, want, strict=True):
            for t, nodes in enumerate(trees):
                k = 3 * reached(nodes, row) - 7
                for target in (0, 2):
                    sums[target] += weights[names[t], k, target]
        for layout in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
            np.testing.assert_array_equal(op.reference(layout), want.astype(np.float32), strict=True)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("count_of_trees", [40, 1])
@pytest.mark.parametrize("how", ["SUM", "MIN", "MAX", "AVERAGE"])
def test_aggregates_of_one_target(rng: np.random.Generator, how: str, count_of_trees: int) -> None:
    trees = forest(rng, trees=40, depth=4) if count_of_trees == 40 else [tree(rng, MODES, 6)]
    count = np.float32(count_of_trees)
    of = {"SUM": lambda w: np.cumsum(w)[-1], "MIN": min, "MAX": max, "AVERAGE": lambda w: np.cumsum(w)[-1] / count}[how]
    given, names = attributes(rng, trees)
    held = [(names[t], 3 * k - 7) for t, nodes in enumerate(trees) for k, node in enumerate(nodes) if node[0] == "LEAF"]
    weights = dict(zip(held, rng.standard_normal(len(held)).astype(np.float32), strict=True))
    tree_ids, node_ids = zip(*held, strict=True)
    op = TreeEnsembleRegressor_1(
        **given, target_treeids=tree_ids, target_nodeids=node_ids, target_ids=(0,) * len(held),
        target_weights=tuple(map(float, weights.values())), aggregate_function=how,
    )  # fmt: skip
    for rows in (1, 1, 1, 1, 1, 60):
        x = samples(rng, rows, np.float32)
        want = [[of([weights[names[t], 3 * reached(nodes, row) - 7] for t, nodes in enumerate(trees)])] for row in x]
        np.testing.assert_array_equal(op.reference(x), np.array(want, np.float32))


@pytest.mark.usefixtures("sizes")
def test_nodes_that_look_up_and_lead_to_common_nodes(rng: np.random.Generator) -> None:
    """A chain of nodes, each of which leads to the next one twice, or to a leaf."""
    count, leaves = 30, 9
    lists = [rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0, math.inf], size=rng.integers(0, 5)).tolist() for _ in range(count)]
    ends = [(int(leaf), 1) if rng.random() < 0.4 else (k + 1, 0) for k, leaf in enumerate(rng.integers(leaves, size=count))]
    nexts = [(k + 1, 0) for k in range(count - 1)]
    yes, no = [*nexts, (3, 1)], [*ends[:-1], (5, 1)]
    weights, features = rng.standard_normal(leaves).astype(np.float32), rng.integers(2, size=count)
    op = TreeEnsemble(
        nodes_featureids=tuple(map(int, features)), nodes_splits=np.zeros(count, np.float32),
        nodes_modes=np.full(count, 6, np.uint8),
        nodes_truenodeids=tuple(n for n, _ in yes), nodes_trueleafs=tuple(leaf for _, leaf in yes),
        nodes_falsenodeids=tuple(n for n, _ in no), nodes_falseleafs=tuple(leaf for _, leaf in no),
        leaf_targetids=(0,) * leaves, leaf_weights=weights, tree_roots=(0, 0, 7),
        membership_values=np.array([value for one in lists for value in [*one, math.nan]], np.float32),
    )  # fmt: skip
    for rows in (1, 70):
        x = rng.choice([-2.0, -1.0, 0.0, 1.0, 3.0, math.inf, math.nan], size=(rows, 2)).astype(np.float32)
        want = np.zeros(rows, np.float32)
        for i, row in enumerate(x):
            for root in (0, 0, 7):
                at, is_leaf = root, 0
                while not is_leaf:
                    at, is_leaf = yes[at] if row[features[at]] in lists[at] else no[at]
                want[i] += weights[at]
        np.testing.assert_array_equal(op.reference(x)[:, 0], want)


def test_values_in_float64_are_compared_in_it() -> None:
    value = 1 + 2.0**-40
    stump = {"nodes_treeids": (0,) * 3, "nodes_nodeids": (0, 1, 2), "nodes_featureids": (0,) * 3, "n_targets": 1}
    stump |= {"nodes_modes": ("BRANCH_LT", "LEAF", "LEAF"), "nodes_truenodeids": (1, 0, 0), "nodes_falsenodeids": (2, 0, 0)}
    leaves = {"target_treeids": (0, 0), "target_nodeids": (1, 2), "target_ids": (0, 0), "target_weights": (1.0, 2.0)}
    op = TreeEnsembleRegressor_3(**stump, **leaves, nodes_values_as_tensor=np.array([value, 0, 0]))
    assert op.reference(np.array([[1.0], [value]])).tolist() == [[1], [2]]
    assert op.reference(np.array([[1.0], [1 + 2.0**-20]], np.float32)).tolist() == [[1], [2]]


@pytest.mark.parametrize("labels", [(3, 7, 9), (3, 7)], ids=str)
def test_classes_that_no_leaf_holds_take_no_part(labels: tuple[int, ...]) -> None:
    """The one leaf that is reached holds a negative score for the second class, and nothing for the others."""
    given = {"nodes_treeids": (0,) * 3, "nodes_nodeids": (0, 1, 2), "nodes_featureids": (0,) * 3, "nodes_values": (0.0,) * 3}
    given |= {"nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"), "nodes_truenodeids": (1, 0, 0), "nodes_falsenodeids": (2, 0, 0)}
    leaves = {"class_treeids": (0, 0), "class_nodeids": (1, 2), "class_ids": (1, 0), "class_weights": (-1.0, 2.0)}
    op = TreeEnsembleClassifier_1(**given, **leaves, classlabels_int64s=labels)
    chosen, scores = op.reference(np.array([[-1], [1]], np.float32))
    assert chosen.tolist() == [7, 3]
    assert scores[:, :2].tolist() == [[0, -1], [2, 0]]


def test_numbers_of_nodes_that_are_too_far_apart_are_refused() -> None:
    given = {"nodes_treeids": (0, 0, 1), "nodes_nodeids": (-(2**62), 2**62, 0), "nodes_featureids": (0,) * 3}
    given |= {
        "nodes_modes": ("LEAF",) * 3,
        "nodes_values": (0.0,) * 3,
        "nodes_truenodeids": (0,) * 3,
        "nodes_falsenodeids": (0,) * 3,
    }
    op = TreeEnsembleRegressor_1(**given, target_treeids=(0,), target_nodeids=(0,), target_ids=(0,), target_weights=(1.0,))
    with pytest.raises(OperatorError, match="accepted: a smaller range"):
        op.reference(np.zeros((1, 1), np.float32))


def chain(rng: np.random.Generator, values: Array, mode: str, tracks: float = 0, entries: float = 0) -> list[tuple[Any, ...]]:
    """A node for each value of feature 0, which leads to a leaf where x equals it, else to the next one.

    In place of some leaves, as many as `entries` of 1, is a node that leads to the next one, too.
    """
    nodes: list[tuple[Any, ...]] = []
    for value in values.tolist():
        here, own = len(nodes), str(rng.choice(["BRANCH_EQ", "BRANCH_NEQ"])) if mode == "both" else mode
        sides = (here + 1, here + 2) if own == "BRANCH_EQ" else (here + 2, here + 1)
        nodes.append((own, 0, value, *sides, int(rng.random() < tracks)))
        nodes.append(("BRANCH_LEQ", 1, 0.0, here + 2, here + 2, 0) if rng.random() < entries else ("LEAF", 0, 0.0, 0, 0, 0))
    return [*nodes, ("LEAF", 0, 0.0, 0, 0, 0)]


def categories(rng: np.random.Generator, count: int) -> Array:
    """Different numbers, infinities and neighbours among them."""
    found = np.array([math.inf, -math.inf, 1, np.nextafter(np.float32(1), np.float32(2)), 0.0, *range(-60, 0)], np.float32)
    return rng.permutation(found)[:count]


def of_chains(
    rng: np.random.Generator, trees: list[list[tuple[Any, ...]]]
) -> tuple[TreeEnsembleRegressor_1, list[dict[int, float]]]:
    """A regressor, and the weights of the leaves of each tree by their nodes."""
    given, names = attributes(rng, trees)
    weights = [{k: float(rng.integers(1000)) for k, node in enumerate(nodes) if node[0] == "LEAF"} for nodes in trees]
    held = [(names[t], 3 * k - 7, 0, weight) for t, of_tree in enumerate(weights) for k, weight in of_tree.items()]
    columns = zip(*held, strict=True)
    leaves = {f"target_{name}": column for name, column in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)}
    return TreeEnsembleRegressor_1(**given, **leaves), weights


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 65])
@pytest.mark.parametrize("kind", ["BRANCH_EQ", "BRANCH_NEQ", "both", "repeated", "NaN", "tracked", "entered"])
def test_chains_of_comparisons(rng: np.random.Generator, kind: str, count: int, dtype: Any) -> None:
    trees = []
    for _ in range(4):
        values = categories(rng, count)
        if kind in ("repeated", "NaN"):
            values[rng.integers(count)] = values[0] if kind == "repeated" else math.nan
        mode = kind if kind.startswith("BRANCH") else "both" if kind == "both" else "BRANCH_EQ"
        trees.append(chain(rng, values, mode, 0.3 * (kind == "tracked"), 0.2 * (kind == "entered")))
    op, weights = of_chains(rng, trees)
    column = np.concatenate([categories(rng, 65), [math.nan, -0.0, 0.5, -100, 100]])
    x = np.stack([column, rng.permutation(column)], axis=1).astype(dtype)
    want = np.array([sum(of[reached(nodes, row)] for nodes, of in zip(trees, weights, strict=True)) for row in x])
    np.testing.assert_array_equal(op.reference(x)[:, 0], want)
    for i in (0, 7, 65):
        np.testing.assert_array_equal(op.reference(x[i : i + 1])[:, 0], want[i : i + 1])


def test_chains_are_searched_by_halves(rng: np.random.Generator) -> None:
    op, _ = of_chains(rng, [chain(rng, np.arange(100, dtype=np.float32), "BRANCH_EQ")])
    assert op._built._single.slots.depth == 8
    op, _ = of_chains(rng, [chain(rng, np.array([1, 2, 3, 2], np.float32), "BRANCH_EQ")])
    assert op._built._single.slots.depth == 8
