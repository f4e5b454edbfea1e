"""Cases that onnxruntime refuses or treats differently: maps of other types, labels of two classes, and what is refused."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError
from dovetail.plugins import PluginManager
from dovetail_ops_onnx_ml import _base
from dovetail_ops_onnx_ml.linear_classifier import LinearClassifier
from dovetail_ops_onnx_ml.linear_regressor import LinearRegressor

NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
LEAVES: dict[str, Any] = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [1.0, 2.0]}
CLASSES = {f"class_{name}": value for name, value in LEAVES.items()}
TREE = {**NODES, **{f"target_{name}": value for name, value in LEAVES.items()}, "n_targets": 2}


@pytest.mark.parametrize(
    ("given", "words", "want"),
    [
        ({"a": np.float64(1.1)}, {"string_vocabulary": ["b", "a"]}, np.array([[0, 1.1]])),
        ({"b": 3, "z": 4}, {"string_vocabulary": ["b", "a"]}, np.array([[3, 0]])),
        ({1: "x", 3: "y"}, {"int64_vocabulary": [3, 2]}, np.array([["y", ""]], object)),
    ],
    ids=["float64", "int64", "string"],
)
def test_dict_vectorizer_keeps_the_type_of_the_values(one_node: Any, given: Any, words: Any, want: Any) -> None:
    (found,) = one_node("DictVectorizer", [given], **words)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("target", "want"), [("TO_FLOAT", [[-4.5, 3.0]]), ("TO_INT64", [[-4, 3]]), ("TO_STRING", [["-4.5", "3"]])]
)
def test_cast_map_of_strings(one_node: Any, target: str, want: Any) -> None:
    (found,) = one_node("CastMap", [{6: "3", 0: "-4.5"}], cast_to=target)
    assert found.tolist() == want


def test_the_label_of_two_classes_is_that_of_the_greater_score(one_node: Any) -> None:
    x = np.array([[-1], [1]], np.float32)
    labels, scores = one_node("TreeEnsembleClassifier", [x], 2, **NODES, **CLASSES, classlabels_int64s=[3, 7])
    assert (labels.tolist(), scores.tolist()) == ([3, 7], [[1, 0], [0, 2]])


@pytest.mark.parametrize("labels", [[7], ["a"]], ids=str)
def test_one_class(one_node: Any, labels: list[Any]) -> None:
    """As scikit-learn fits a classifier to rows of one class."""
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    classes = {**CLASSES, "class_ids": [0] * len(CLASSES["class_ids"])}
    found, scores = one_node(
        "TreeEnsembleClassifier", [np.array([[-1], [1]], np.float32)], 2, **NODES, **classes, **{name: labels}
    )
    assert (found.tolist(), scores.tolist()) == (labels * 2, [[1], [2]])


def test_no_samples(one_node: Any) -> None:
    (found,) = one_node("TreeEnsembleRegressor", [X[:0]], **TREE)
    assert found.shape == (0, 2)
    labels, scores = one_node("TreeEnsembleClassifier", [X[:0]], 2, **NODES, **CLASSES, classlabels_strings=["a", "b"])
    assert (labels.shape, scores.shape) == ((0,), (0, 2))


# --- what is refused -------------------------------------------------------------------------------------------------

X = np.zeros((2, 2), np.float32)
TWO, THREE = {"classlabels_ints": [1, 2]}, {"classlabels_ints": [1, 2, 3]}
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("ArrayFeatureExtractor", "input 'Y' asks for element 5; accepted: 0 to 1", {}),
    ("Scaler", "attribute 'scale' has 3 numbers; accepted: 1, or 2", {"offset": [0.0], "scale": [1.0, 2.0, 3.0]}),
    ("Normalizer", "attribute 'norm' is 'L3'", {"norm": "L3"}),
    ("Imputer", "attribute 'imputed_value_floats' is empty", {}),
    ("LinearRegressor", "input 'X' has 2 features; the coefficients are for 3", {"coefficients": [1.0, 2.0, 3.0]}),
    ("LinearClassifier", "2 intercepts and 3 labels", {"coefficients": [1.0] * 4, "intercepts": [0.0] * 2, **THREE}),
    ("LinearClassifier", "accepted: NONE, SOFTMAX", {"coefficients": [1.0] * 6, "post_transform": "MAX", **THREE}),
    ("LinearClassifier", "'PROBIT' for two classes", {"coefficients": [1.0], **TWO, "post_transform": "PROBIT"}),
    ("ZipMap", "a score for each of the 3 labels", {"classlabels_int64s": [1, 2, 3]}),
    ("ZipMap", "0 labels that are numbers and 0 strings", {}),
    ("OneHotEncoder", "has 0.0, which is not a category; accepted: .5.", {"cats_int64s": [5], "zeros": 0}),
    ("SVMRegressor", "'kernel_type' 'CUBE'", {"kernel_type": "CUBE"}),
    ("SVMRegressor", "'post_transform' is 'LOGISTIC'; accepted: NONE", {"post_transform": "LOGISTIC"}),
    ("SVMClassifier", "'rho' has 1 numbers; accepted: 3", {"vectors_per_class": [1, 1, 1], "rho": [0.0], **THREE}),
    ("TreeEnsembleRegressor", "'nodes_modes' has 2 elements; accepted: 3", {**TREE, "nodes_modes": ["LEAF", "LEAF"]}),
    ("TreeEnsembleRegressor", "'nodes_modes' has 'BRANCH_NO'", {**TREE, "nodes_modes": ["BRANCH_NO", "LEAF", "LEAF"]}),
    ("TreeEnsembleRegressor", "node 9 of tree 0 is missing", {**TREE, "nodes_truenodeids": [9, 0, 0]}),
    ("TreeEnsembleRegressor", "one node that no other leads to", {**TREE, "nodes_truenodeids": [2, 0, 0]}),
    ("TreeEnsembleRegressor", "'nodes_featureids' has -1", {**TREE, "nodes_featureids": [-1, 0, 0]}),
    ("TreeEnsembleRegressor", "has 2 features; the trees read 6", {**TREE, "nodes_featureids": [5, 0, 0]}),
    ("TreeEnsembleRegressor", "'target_ids' goes from 0 to 1; accepted: 0 to 0", {**TREE, "n_targets": 1}),
    ("TreeEnsembleRegressor", "'target_nodeids' names node 8", {**TREE, "target_nodeids": [1, 8]}),
    ("TreeEnsembleRegressor", "names a node of a tree twice", {**TREE, "nodes_nodeids": [0, 1, 1]}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "message", "attributes"), REFUSED, ids=[f"{name}-{text[:30]}" for name, text, _ in REFUSED])
def test_what_is_refused(one_node: Any, op_type: str, message: str, attributes: Any) -> None:
    inputs = [X, np.array([5])] if op_type == "ArrayFeatureExtractor" else [X]
    with pytest.raises(DovetailError, match=rf"{op_type}\).*{message}"):
        one_node(op_type, inputs, 2 if op_type.endswith("Classifier") else 1, **attributes)


def test_maps_that_do_not_fit_are_refused(one_node: Any) -> None:
    with pytest.raises(DovetailError, match=r"CastMap\).*has the key 7; accepted: 0 to 2"):
        one_node("CastMap", [{7: np.float32(1)}], map_form="SPARSE", max_map=3)
    with pytest.raises(DovetailError, match=r"CastMap\).*'x', which is not a number"):
        one_node("CastMap", [{1: "x"}])


def test_trees_that_lead_back_to_themselves_are_an_error(one_node: Any) -> None:
    """Node 0 leads to 1 and a leaf, 1 to 2, 2 to 1: the root is fine, and no sample ends."""
    loop = {
        "nodes_treeids": [0] * 4, "nodes_nodeids": [0, 1, 2, 3], "nodes_featureids": [0] * 4, "nodes_values": [0.0] * 4,
        "nodes_modes": ["BRANCH_LEQ"] * 3 + ["LEAF"], "nodes_truenodeids": [1, 2, 1, 0], "nodes_falsenodeids": [3, 3, 3, 0],
    }  # fmt: skip
    leaf = {"target_treeids": [0], "target_nodeids": [3], "target_ids": [0], "target_weights": [1.0]}
    with pytest.raises(DovetailError, match="a tree does not end"):
        one_node("TreeEnsembleRegressor", [X], **loop, **leaf)


# --- the package -----------------------------------------------------------------------------------------------------


def test_the_pack_is_imported_only_for_its_domain() -> None:
    manager = PluginManager(config=False)
    name = "dovetail-ops-onnx-ml/ops/ai.onnx.ml"
    assert manager.record(name).state == "found"
    manager.operator("ai.onnx.ml", "ZipMap", 1)
    assert manager.record(name).state == "loaded"


def test_onnx_is_not_imported() -> None:
    code = (
        "import sys, numpy, dovetail\n"
        "from dovetail.op import UnboundOperator\n"
        "g = dovetail.GraphBuilder()\n"
        "x = g.input('x', 'float32', [3])\n"
        "model = g.model([g.node(UnboundOperator('ai.onnx.ml', 'Binarizer', 3, {}), x, outputs=['y'])])\n"
        "assert dovetail.Core().compile_model(model, 'NUMPY')([numpy.ones(3, 'float32')])[0].tolist() == [1, 1, 1]\n"
        "assert 'onnx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 500])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_models_in_blocks(monkeypatch: pytest.MonkeyPatch, count: int, targets: int) -> None:
    monkeypatch.setattr(_base, "_PRODUCTS", 64 * 5 * targets)
    monkeypatch.setattr(_base, "_LEAST", 2)
    rng = np.random.default_rng(8)
    x = rng.standard_normal((5, count)).astype(np.float32).T
    weights, intercepts = rng.standard_normal((targets, 5)), rng.standard_normal(targets)
    want = x.astype(np.float64) @ weights.T + intercepts
    op = LinearRegressor(coefficients=tuple(weights.ravel()), intercepts=tuple(intercepts), targets=targets)
    np.testing.assert_allclose(op.reference(x), want, rtol=1e-6)
    labels = tuple(range(max(2, targets)))
    classifier = LinearClassifier(
        coefficients=tuple(weights.ravel()), intercepts=tuple(intercepts), classlabels_ints=labels, post_transform="NONE"
    )
    chosen, scores = classifier.reference(x)
    np.testing.assert_allclose(scores[:, -targets:], want, rtol=1e-6)
    np.testing.assert_array_equal(chosen, want.argmax(1) if targets > 1 else want[:, 0] > 0)


@pytest.mark.parametrize(("products", "long"), [(1, 1 << 25), (100, 1 << 25), (1000, 1001), (1 << 18, 1 << 25)])
@pytest.mark.parametrize("size", [(1, 4, 3), (37, 5, 41), (40, 1, 300), (0, 3, 2), (5, 0, 4), (5, 3, 0)], ids=str)
def test_products_in_blocks(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], products: int, long: int) -> None:
    for name, value in (("_PRODUCTS", products), ("_LONG", long), ("_LEAST", 4)):
        monkeypatch.setattr(_base, name, value)
    rng, (count, features, targets) = np.random.default_rng(9), size
    x, weights = rng.standard_normal((count, features)).astype(np.float32), rng.standard_normal((targets, features)).T
    found = _base.product(x, weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.einsum("nf,ft->nt", x.astype(np.float64), weights), rtol=1e-12, atol=1e-12)
