"""Models that scikit-learn has trained, written as its converters write them, against onnxruntime and against itself."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Array = NDArray[Any]
DOMAIN = "ai.onnx.ml"
NAMES = np.array(["ant", "bee", "cat"])


def node(op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, domain=DOMAIN, **attributes)


def data(labels: str) -> tuple[Array, Array]:
    """Sixty samples of three classes with some values missing, and their labels: numbers or names."""
    x, y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    x[::7, 2] = np.nan
    return x, NAMES[y] if labels == "names" else y


def labels_of(classes: Array, kind: str) -> dict[str, Any]:
    """`classlabels_...` as ONNX's operators call them."""
    return {f"classlabels_{'strings' if classes.dtype.kind == 'U' else kind}": classes.tolist()}


def check(same: Any, nodes: list[Any], model: Any, x: Array) -> None:
    """The nodes and a ZipMap of their `scores` by dovetail, onnxruntime and scikit-learn."""
    classes = model.classes_
    key = TensorProto.STRING if classes.dtype.kind == "U" else TensorProto.INT64
    row = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = {"label": helper.make_tensor_type_proto(key, None), "maps": helper.make_sequence_type_proto(row)}
    zip_map = node("ZipMap", ["scores"], ["maps"], **labels_of(classes, "int64s"))
    label, maps = same([*nodes, zip_map], {"x": x}, outputs)
    assert (label == model.predict(x)).all()
    assert all(list(one) == classes.tolist() for one in maps)
    np.testing.assert_allclose([list(one.values()) for one in maps], model.predict_proba(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", ["numbers", "names"])
def test_a_pipeline_with_logistic_regression(same: Any, labels: str) -> None:
    x, y = data(labels)
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(x, y)
    imputer, scaler, model = (step for _, step in pipeline.steps)
    missing = {"imputed_value_floats": imputer.statistics_.tolist(), "replaced_value_float": float("nan")}
    weights = {"coefficients": model.coef_.reshape(-1).tolist(), "intercepts": model.intercept_.tolist()}
    nodes = [
        node("Imputer", ["x"], ["full"], **missing),
        node("Scaler", ["full"], ["scaled"], offset=scaler.mean_.tolist(), scale=(1 / scaler.scale_).tolist()),
        node("LinearClassifier", ["scaled"], ["label", "raw"], **weights, **labels_of(model.classes_, "ints")),
        helper.make_node("Softmax", ["raw"], ["scores"], axis=1),
    ]
    check(same, nodes, pipeline, x)


@pytest.mark.parametrize("labels", ["numbers", "names"])
def test_a_random_forest(same: Any, labels: str) -> None:
    x, y = data(labels)
    x = np.nan_to_num(x)
    forest = RandomForestClassifier(7, max_depth=4, random_state=1).fit(x, y)
    attributes = {**trees_of(forest), **labels_of(forest.classes_, "int64s")}
    check(same, [node("TreeEnsembleClassifier", ["x"], ["label", "scores"], **attributes)], forest, x)


def test_a_tie_of_two_classes(same: Any) -> None:
    """Of ten trees five give their tenth to the second class: that is a half, and not more."""
    stumps = [(t, n, 0, 0.0, mode, 1, 2) for t in range(10) for n, mode in enumerate(("BRANCH_LEQ", "LEAF", "LEAF"))]
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*stumps, strict=True), strict=True)}
    leaves = [(t, n, 0.1 if (t + n) % 2 else 0.0) for t in range(10) for n in (1, 2)]
    tree, leaf, weights = (list(column) for column in zip(*leaves, strict=True))
    held = {"class_treeids": tree, "class_nodeids": leaf, "class_ids": [0] * 20, "class_weights": weights}
    outputs = {"label": helper.make_tensor_type_proto(TensorProto.INT64, None)}
    outputs["scores"] = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    trees = node("TreeEnsembleClassifier", ["x"], list(outputs), **nodes, **held, classlabels_int64s=[3, 7])
    label, _ = same([trees], {"x": np.array([[-1], [1]], np.float32)}, outputs)
    assert label.tolist() == [3, 3]


def trees_of(forest: Any) -> dict[str, Any]:
    """The attributes of TreeEnsembleClassifier: each leaf holds its share of every class, divided by the number of trees."""
    nodes = []
    leaves = []
    for number, tree in enumerate(estimator.tree_ for estimator in forest.estimators_):
        for i in range(tree.node_count):
            yes, no = int(tree.children_left[i]), int(tree.children_right[i])
            if yes < 0:
                nodes.append((number, i, 0, 0.0, "LEAF", 0, 0))
                shares = tree.value[i][0] / tree.value[i][0].sum() / len(forest.estimators_)
                leaves += [(number, i, k, float(share)) for k, share in enumerate(shares)]
            else:
                nodes.append((number, i, int(tree.feature[i]), float(tree.threshold[i]), "BRANCH_LEQ", yes, no))
    of_nodes = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    found = {f"nodes_{name}": list(column) for name, column in zip(of_nodes, zip(*nodes, strict=True), strict=True)}
    of_leaves = ("treeids", "nodeids", "ids", "weights")
    return found | {f"class_{name}": list(column) for name, column in zip(of_leaves, zip(*leaves, strict=True), strict=True)}
