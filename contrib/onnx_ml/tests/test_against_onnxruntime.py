"""Every operator against onnxruntime on random inputs: types, ranks, transforms, ties, missing values."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
NUMBERS = (np.float32, np.float64, np.int64, np.int32)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
TEXTS = np.array([["a", "b"], ["c", "z"]], object)


def drawn(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return np.asarray(rng.standard_normal(shape) * 2).astype(dtype)


def floats(array: Any) -> list[float]:
    return [float(x) for x in np.asarray(array, np.float32).reshape(-1)]


def tolerance(transform: str) -> float:
    """The quantile of the normal distribution magnifies float32's rounding."""
    return 2e-3 if transform == "PROBIT" else 1e-5


# --- what prepares features ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.__name__)
def test_preparation(agree: Any, rng: np.random.Generator, dtype: Any) -> None:
    x = drawn(rng, 5, 3, dtype=dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    agree("Scaler", [x], [FLOAT], offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0])
    agree("Scaler", [x], [FLOAT], offset=[1.0], scale=[0.5])
    agree("Scaler", [x[0].copy()], [FLOAT], offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0])
    agree("ArrayFeatureExtractor", [x, np.array([2, 0])], [kind])
    agree("ArrayFeatureExtractor", [x[0].copy(), np.array([[2, 0]])], [kind])
    agree("FeatureVectorizer", [x, x[:, :2].copy()], [FLOAT], inputdimensions=[3, 2])
    if dtype is not np.int32:
        agree("OneHotEncoder", [x], [FLOAT], cats_int64s=[0, 1, -2, 3])
        agree("OneHotEncoder", [x[0].copy()], [FLOAT], cats_int64s=[0, 1, -2, 3])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.__name__)
def test_normalizer(agree: Any, rng: np.random.Generator, norm: str, dtype: Any) -> None:
    x = drawn(rng, 5, 3, dtype=dtype)
    x[2] = 0
    x[3] = -np.abs(x[3])
    agree("Normalizer", [x], [FLOAT], norm=norm)
    agree("Normalizer", [x[1].copy()], [FLOAT], norm=norm)


def test_binarizer(agree: Any, rng: np.random.Generator) -> None:
    agree("Binarizer", [drawn(rng, 5, 3)], [FLOAT], threshold=0.25)


def test_imputer(agree: Any, rng: np.random.Generator) -> None:
    x = drawn(rng, 5, 3)
    x[x < 0] = np.nan
    nan = float("nan")
    agree("Imputer", [x], [FLOAT], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=nan)
    agree("Imputer", [x], [FLOAT], imputed_value_floats=[1.0], replaced_value_float=nan)
    agree("Imputer", [np.array([[0, 1], [2, 0]], np.float32)], [FLOAT], imputed_value_floats=[5.0, 6.0])
    agree("Imputer", [np.array([[0, 1], [2, 0]])], [INT64], imputed_value_int64s=[5, 6])


def test_strings(agree: Any) -> None:
    agree("OneHotEncoder", [TEXTS], [FLOAT], cats_strings=["c", "a"])
    agree("ArrayFeatureExtractor", [TEXTS, np.array([1])], [STRING])
    agree("CategoryMapper", [TEXTS], [INT64], 1, cats_strings=["a", "z"], cats_int64s=[4, 5])
    agree("CategoryMapper", [np.array([4, 9])], [STRING], 1, cats_strings=["a", "z"], cats_int64s=[4, 5], default_string="?")


def test_label_encoder(agree: Any) -> None:
    nan = float("nan")
    numbers = np.array([1, nan, 2], np.float32)
    agree("LabelEncoder", [TEXTS], [INT64], 1, classes_strings=["z", "a"])
    agree("LabelEncoder", [np.array([0, 1, 5])], [STRING], 1, classes_strings=["z", "a"])
    agree("LabelEncoder", [TEXTS], [FLOAT], 2, keys_strings=["z", "a"], values_floats=[1.5, 2.5])
    agree("LabelEncoder", [TEXTS], [STRING], 2, keys_strings=["z", "a"], values_strings=["p", "q"], default_string="?")
    agree("LabelEncoder", [np.array([1, 2])], [INT64], 2, keys_int64s=[1, 1], values_int64s=[5, 6], default_int64=9)
    assert agree("LabelEncoder", [numbers], [INT64], 2, keys_floats=[nan, 1], values_int64s=[5, 6])[0].tolist() == [6, -1, -1]
    assert agree("LabelEncoder", [numbers], [INT64], 4, keys_floats=[nan, 1], values_int64s=[5, 6])[0].tolist() == [6, 5, -1]
    tensors = {"keys_tensor": np.array([2.0, 1.0]), "values_tensor": np.array([7.5, 8.0]), "default_tensor": np.array([3.0])}
    given = {name: numpy_helper.from_array(array) for name, array in tensors.items()}
    agree("LabelEncoder", [np.array([1.0, 5.0, 2.0])], [DOUBLE], 4, **given)


# --- linear models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("labels", [["a", "b"], [3, 7], ["a", "b", "c"], [0, 1, 2]], ids=str)
def test_linear_classifier(agree: Any, rng: np.random.Generator, labels: list[Any], transform: str) -> None:
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    outputs = [STRING if isinstance(labels[0], str) else INT64, FLOAT]
    for targets, dtype in itertools.product({1, len(labels)}, (np.float32, np.float64, np.int64)):
        if targets == 1 and (transform == "PROBIT" or len(labels) > 2):
            continue  # onnxruntime leaves a number unset, or refuses
        x = np.abs(drawn(rng, 5, 3, dtype=dtype)) / 20 if transform == "PROBIT" else drawn(rng, 5, 3, dtype=dtype)
        weights = rng.uniform(0, 0.1, (targets, 3)) if transform == "PROBIT" else rng.standard_normal((targets, 3))
        agree(
            "LinearClassifier", [x.astype(dtype)], outputs, tolerance=tolerance(transform), coefficients=floats(weights),
            intercepts=floats(rng.uniform(0.01, 0.3, targets)), post_transform=transform, **{name: labels},
        )  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(agree: Any, rng: np.random.Generator, targets: int, transform: str) -> None:
    given = {"coefficients": floats(rng.uniform(0, 0.3, (targets, 3))), "targets": targets, "post_transform": transform}
    intercepts = floats(rng.uniform(0.01, 0.3, targets))
    close = tolerance(transform)
    agree("LinearRegressor", [np.abs(drawn(rng, 5, 3)) / 10], [FLOAT], tolerance=close, intercepts=intercepts, **given)
    agree("LinearRegressor", [np.abs(drawn(rng, 3)) / 10], [FLOAT], tolerance=close, **given)


# --- trees -----------------------------------------------------------------------------------------------------------


def forest(rng: np.random.Generator, mode: str, trees: int = 3, depth: int = 3) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The attributes `nodes_...` of random trees over four features, and their leaves."""
    rows: list[list[Any]] = []
    leaves = []

    def grow(tree: int, numbers: Any, left: int) -> int:
        number, place = next(numbers), len(rows)
        rows.append([tree, number, 0, 0.0, "LEAF", 0, 0, 0])
        if left == 0 or rng.random() < 0.15:
            leaves.append((tree, number))
            return int(number)
        value = rng.integers(-2, 3) if mode in ("BRANCH_EQ", "BRANCH_NEQ") else rng.standard_normal()
        own = mode if mode != "mixed" else str(rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]))
        yes, no = grow(tree, numbers, left - 1), grow(tree, numbers, left - 1)
        rows[place] = [tree, number, int(rng.integers(4)), float(np.float32(value)), own, yes, no, int(rng.integers(2))]
        return int(number)

    for tree in range(trees):
        grow(tree, itertools.count(), depth)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}, leaves


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "mixed")


def features(rng: np.random.Generator, mode: str) -> Array:
    x = drawn(rng, 9, 4)
    x = np.round(x) if mode in ("BRANCH_EQ", "BRANCH_NEQ") else x
    x[0, 1] = np.nan
    return x


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("mode", MODES)
def test_tree_ensemble_regressor(agree: Any, rng: np.random.Generator, mode: str, how: str) -> None:
    for transform, targets, base in itertools.product(("NONE", "SOFTMAX", "PROBIT"), (1, 3), (False, True)):
        nodes, leaves = forest(rng, mode)
        rows = [(*leaf, target) for leaf in leaves for target in range(targets)]
        tree, node, ids = (list(column) for column in zip(*rows, strict=True))
        weights = rng.uniform(0.05, 0.3, len(rows)) if transform == "PROBIT" else rng.standard_normal(len(rows))
        agree(
            "TreeEnsembleRegressor", [features(rng, mode)], [FLOAT], tolerance=tolerance(transform), **nodes, n_targets=targets,
            target_treeids=tree, target_nodeids=node, target_ids=ids, target_weights=floats(weights), aggregate_function=how,
            post_transform=transform, base_values=floats(rng.uniform(0, 0.1, targets)) if base else None,
        )  # fmt: skip


@pytest.mark.parametrize("labels", [["a", "b"], [3, 7], ["a", "b", "c"], [1, 2, 4]], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_tree_ensemble_classifier(agree: Any, rng: np.random.Generator, mode: str, labels: list[Any]) -> None:
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    outputs = [STRING if isinstance(labels[0], str) else INT64, FLOAT]
    # Of two classes the leaves hold one: where they hold both, onnxruntime's label is not that of the greater score.
    held = ([0],) if len(labels) == 2 else ([0], [0, 1, 2])
    for transform, classes, positive, base in itertools.product(TRANSFORMS, held, (True, False), (False, True)):
        if transform == "PROBIT" and not (positive and classes == [0, 1, 2]):
            continue
        nodes, leaves = forest(rng, mode)
        tree, node, ids = (list(c) for c in zip(*[(*leaf, c) for leaf in leaves for c in classes], strict=True))
        weights = rng.uniform(0, 0.33, len(ids)) if positive else rng.standard_normal(len(ids)) * 0.3
        agree(
            "TreeEnsembleClassifier", [features(rng, mode)], outputs, tolerance=tolerance(transform), **nodes,
            class_treeids=tree, class_nodeids=node, class_ids=ids, class_weights=floats(weights), post_transform=transform,
            base_values=floats(rng.uniform(0, 0.1, 1 if len(labels) == 2 else 3)) if base else None, **{name: labels},
        )  # fmt: skip


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_several_entries_of_a_leaf_for_a_target(agree: Any, rng: np.random.Generator, how: str, targets: int) -> None:
    """Of one target onnxruntime reads the first only, as scikit-learn's converters rely on; for several it takes all."""
    nodes, leaves = forest(rng, "BRANCH_LEQ")
    rows = [(*leaf, int(rng.integers(targets))) for leaf in leaves for _ in range(int(rng.integers(1, 4)))]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    tree, node, ids = (list(column) for column in zip(*rows, strict=True))
    agree(
        "TreeEnsembleRegressor", [features(rng, "BRANCH_LEQ")], [FLOAT], **nodes, n_targets=targets, aggregate_function=how,
        target_treeids=tree, target_nodeids=node, target_ids=ids, target_weights=floats(rng.standard_normal(len(rows))),
    )  # fmt: skip


def test_trees_of_float64(agree: Any, rng: np.random.Generator) -> None:
    nodes, leaves = forest(rng, "BRANCH_LEQ")
    values = numpy_helper.from_array(np.array(nodes.pop("nodes_values")) + 1e-12)
    weights = numpy_helper.from_array(rng.standard_normal(len(leaves)))
    tree, node = (list(column) for column in zip(*leaves, strict=True))
    agree(
        "TreeEnsembleRegressor", [features(rng, "BRANCH_LEQ").astype(np.float64)], [FLOAT], **nodes, n_targets=1,
        nodes_values_as_tensor=values, target_treeids=tree, target_nodeids=node, target_ids=[0] * len(leaves),
        target_weights_as_tensor=weights,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("how", [1, 2, 3])
def test_tree_ensemble(agree: Any, rng: np.random.Generator, how: int, dtype: Any) -> None:
    """Two trees; the second asks whether a feature is in a list."""
    tensors = {
        "nodes_splits": np.array([0.1, -0.3, 0.0, 0.4], dtype), "nodes_modes": np.array([0, 3, 6, 0], np.uint8),
        "leaf_weights": rng.standard_normal(6).astype(dtype), "membership_values": np.array([1, 2, np.nan], dtype),
    }  # fmt: skip
    x = drawn(rng, 9, 3, dtype=dtype)
    x[:, 1] = np.round(x[:, 1])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    agree(
        "TreeEnsemble", [x], [kind], 5, n_targets=2, aggregate_function=how, tree_roots=[0, 2],
        nodes_featureids=[0, 2, 1, 2], nodes_truenodeids=[1, 0, 3, 4], nodes_falsenodeids=[2, 1, 3, 5],
        nodes_trueleafs=[0, 1, 0, 1], nodes_falseleafs=[1, 1, 1, 1], leaf_targetids=[0, 1, 0, 1, 0, 1],
        **{name: numpy_helper.from_array(array) for name, array in tensors.items()},
    )  # fmt: skip


# --- support vectors -------------------------------------------------------------------------------------------------

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
PARAMS = [0.3, 0.5, 2.0]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(agree: Any, rng: np.random.Generator, kernel: str, one_class: int) -> None:
    weights, vectors = floats(rng.standard_normal(4)), floats(rng.standard_normal(12))
    given = {"coefficients": weights, "support_vectors": vectors, "rho": [0.3], "n_supports": 4, "one_class": one_class}
    agree("SVMRegressor", [drawn(rng, 5, 3)], [FLOAT], kernel_type=kernel, kernel_params=PARAMS, **given)


@pytest.mark.parametrize("labels", [["a", "b"], [3, 7], ["a", "b", "c"], [1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_classifier(agree: Any, rng: np.random.Generator, kernel: str, labels: list[Any]) -> None:
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    outputs = [STRING if isinstance(labels[0], str) else INT64, FLOAT]
    count, pairs = len(labels), len(labels) * (len(labels) - 1) // 2
    for transform, probabilities in itertools.product(TRANSFORMS[:4], (False, True)):
        counts = [int(n) for n in rng.integers(1, 4, count)]
        platt = {"prob_a": floats(-rng.uniform(0.5, 2, pairs)), "prob_b": floats(rng.standard_normal(pairs) * 0.1)}
        agree(
            "SVMClassifier", [drawn(rng, 7, 3)], outputs, tolerance=2e-5, vectors_per_class=counts, kernel_type=kernel,
            coefficients=floats(rng.standard_normal((count - 1, sum(counts)))), kernel_params=PARAMS, post_transform=transform,
            support_vectors=floats(rng.standard_normal((sum(counts), 3))), rho=floats(rng.standard_normal(pairs)),
            **(platt if probabilities else {}), **{name: labels},
        )  # fmt: skip


# --- maps ------------------------------------------------------------------------------------------------------------


def maps_of(key: int) -> Any:
    return helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, None)))


@pytest.mark.parametrize("samples", [4, 1, 0])
def test_zip_map(agree: Any, rng: np.random.Generator, samples: int) -> None:
    x = drawn(rng, samples, 3)
    (found,) = agree("ZipMap", [x], [maps_of(STRING)], classlabels_strings=["x", "y", "z"])
    assert len(found) == samples
    agree("ZipMap", [x], [maps_of(INT64)], classlabels_int64s=[5, -1, 2**40])


def test_dict_vectorizer(agree: Any) -> None:
    agree("DictVectorizer", [{"a": np.float32(1.5), "c": np.float32(-2)}], [FLOAT], string_vocabulary=["c", "a", "b"])
    agree("DictVectorizer", [{1: np.float32(1.5), 9: np.float32(4)}], [FLOAT], int64_vocabulary=[3, 2, 1])


@pytest.mark.parametrize("target", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
def test_cast_map(agree: Any, target: str) -> None:
    kind = {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}[target]
    given = {5: np.float32(1.5), 1: np.float32(-2)}
    agree("CastMap", [given], [kind], 1, cast_to=target)
    if target != "TO_STRING":  # onnxruntime fills strings with "0.f"
        agree("CastMap", [given], [kind], 1, cast_to=target, map_form="SPARSE", max_map=7)
