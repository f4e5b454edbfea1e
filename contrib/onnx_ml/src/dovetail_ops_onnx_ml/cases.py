"""Cases of the operators, by hand: a function for each stem, which takes the class."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.op import Operator
from dovetail.testing import Case

__all__ = [
    "array_feature_extractor",
    "binarizer",
    "cast_map",
    "category_mapper",
    "dict_vectorizer",
    "feature_vectorizer",
    "imputer",
    "label_encoder",
    "linear_classifier",
    "linear_regressor",
    "normalizer",
    "one_hot_encoder",
    "scaler",
    "svm_classifier",
    "svm_regressor",
    "tree_ensemble",
    "tree_ensemble_classifier",
    "tree_ensemble_regressor",
    "zip_map",
]

X = np.array([[1, -2, 3], [0, 4, -5]], np.float32)
STUMP: dict[str, Any] = {
    "nodes_treeids": (0, 0, 0),
    "nodes_nodeids": (0, 1, 2),
    "nodes_featureids": (1, 0, 0),
    "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
    "nodes_values": (0.5, 0.0, 0.0),
    "nodes_truenodeids": (1, 0, 0),
    "nodes_falsenodeids": (2, 0, 0),
}
"""Whether feature 1 is at most 0.5: leaf 1 for the first sample of `X`, leaf 2 for the second."""


def _f32(values: Any) -> Any:
    return np.array(values, np.float32)


def array_feature_extractor(cls: type[Operator]) -> Iterator[Case]:
    """Columns, of a matrix and of a vector."""
    yield Case("matrix", cls(), (X, np.array([2, 0])), (_f32([[3, 1], [-5, 0]]),))
    yield Case("vector", cls(), (X[0], np.array([[1]])), (_f32([[-2]]),))


def binarizer(cls: type[Operator]) -> Iterator[Case]:
    """Above the threshold, of floats and integers."""
    yield Case("floats", cls.from_attributes({"threshold": 1.0}), (X,), (_f32([[0, 0, 1], [0, 1, 0]]),))
    yield Case("integers", cls(), (X.astype(np.int64),), (np.array([[1, 0, 1], [0, 1, 0]]),))


def cast_map(cls: type[Operator]) -> Iterator[Case]:
    """In the order of the keys, and in the places that they name."""
    given = {6: 3.0, 0: -4.5}
    yield Case("dense", cls(), (given,), (_f32([[-4.5, 3]]),))
    op = cls.from_attributes({"map_form": "SPARSE", "max_map": 8})
    yield Case("sparse", op, (given,), (_f32([[-4.5, 0, 0, 0, 0, 0, 3, 0]]),))
    op = cls.from_attributes({"cast_to": "TO_INT64"})
    yield Case("strings", op, ({6: "3", 0: "-4.5"},), (np.array([[-4, 3]]),))
    op = cls.from_attributes({"cast_to": "TO_STRING"})
    yield Case("to_strings", op, ({2: "b", 1: "a"},), (np.array([["a", "b"]], object),))


def category_mapper(cls: type[Operator]) -> Iterator[Case]:
    """Both ways."""
    op = cls.from_attributes({"cats_int64s": (7, 8), "cats_strings": ("a", "b")})
    yield Case("strings", op, (np.array(["b", "?"], object),), (np.array([8, -1]),))
    yield Case("numbers", op, (np.array([7, 9]),), (np.array(["a", "_Unused"], object),))


def dict_vectorizer(cls: type[Operator]) -> Iterator[Case]:
    """A word that is missing and one too many, in each type of values."""
    op = cls.from_attributes({"string_vocabulary": ("b", "a")})
    for dtype in (np.int64, np.float32, np.float64):
        yield Case(dtype.__name__, op, ({"z": dtype(4), "b": dtype(3)},), (np.array([[3, 0]], dtype),))
    op = cls.from_attributes({"int64_vocabulary": (3, 2)})
    yield Case("strings", op, ({1: "x", 3: "y"},), (np.array([["y", ""]], object),))


def feature_vectorizer(cls: type[Operator]) -> Iterator[Case]:
    """One input is cut, the other filled up."""
    op = cls.from_attributes({"inputdimensions": (2, 4)})
    yield Case("two", op, (X, X[:, :]), (_f32([[1, -2, 1, -2, 3, 0], [0, 4, 0, 4, -5, 0]]),))


def imputer(cls: type[Operator]) -> Iterator[Case]:
    """NaN, and a number."""
    op = cls.from_attributes({"imputed_value_floats": (7.0, 8.0), "replaced_value_float": math.nan})
    yield Case("nan", op, (_f32([[math.nan, 1], [2, math.nan]]),), (_f32([[7, 1], [2, 8]]),))
    op = cls.from_attributes({"imputed_value_int64s": (9,), "replaced_value_int64": 2})
    yield Case("integer", op, (np.array([[1, 2], [2, 3]]),), (np.array([[1, 9], [9, 3]]),))


def label_encoder(cls: type[Operator]) -> Iterator[Case]:
    """Strings to numbers."""
    given: dict[str, Any] = {"classes_strings": ("b", "a")}
    if cls.since > 1:
        given = {"keys_strings": ("b", "a"), "values_int64s": (0, 1)}
    yield Case("strings", cls.from_attributes(given), (np.array(["a", "?", "b"], object),), (np.array([1, -1, 0]),))


def linear_classifier(cls: type[Operator]) -> Iterator[Case]:
    """Two classes with a score each: the first feature, and 1 more than the second."""
    given = {"coefficients": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), "intercepts": (0.0, 1.0), "classlabels_strings": ("a", "b")}
    want = (np.array(["a", "b"], object), _f32([[1, -1], [0, 5]]))
    yield Case("two", cls.from_attributes(given), (X,), want)


def linear_regressor(cls: type[Operator]) -> Iterator[Case]:
    """The sum of the features, and 1."""
    op = cls.from_attributes({"coefficients": (1.0, 1.0, 1.0), "intercepts": (1.0,)})
    yield Case("sum", op, (X,), (_f32([[3], [0]]),))


def normalizer(cls: type[Operator]) -> Iterator[Case]:
    """Each norm, and zeros."""
    x = _f32([[3, -4], [0, 0]])
    for norm, size in (("MAX", 3), ("L1", 7), ("L2", 5)):
        yield Case(norm, cls.from_attributes({"norm": norm}), (x,), (_f32([[3 / size, -4 / size], [0, 0]]),))


def one_hot_encoder(cls: type[Operator]) -> Iterator[Case]:
    """Strings, one of them unknown."""
    op = cls.from_attributes({"cats_strings": ("a", "b")})
    yield Case("strings", op, (np.array(["b", "?"], object),), (_f32([[0, 1], [0, 0]]),))


def scaler(cls: type[Operator]) -> Iterator[Case]:
    """An offset for all features, a factor for each."""
    op = cls.from_attributes({"offset": (1.0,), "scale": (1.0, 2.0, 3.0)})
    yield Case("each", op, (X,), (_f32([[0, -6, 6], [-1, 6, -18]]),))


def svm_classifier(cls: type[Operator]) -> Iterator[Case]:
    """Two classes with a vector each: the score is the first feature less the second."""
    given = {
        "support_vectors": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        "vectors_per_class": (1, 1),
        "coefficients": (1.0, -1.0),
        "rho": (0.0,),
        "classlabels_ints": (3, 7),
    }
    yield Case("two", cls.from_attributes(given), (X,), (np.array([3, 7]), _f32([[-3, 3], [4, -4]])))


def svm_regressor(cls: type[Operator]) -> Iterator[Case]:
    """One vector, of which the product is the second feature."""
    given = {"support_vectors": (0.0, 1.0, 0.0), "n_supports": 1, "coefficients": (2.0,), "rho": (1.0,)}
    yield Case("one", cls.from_attributes(given), (X,), (_f32([[-3], [9]]),))


def tree_ensemble(cls: type[Operator]) -> Iterator[Case]:
    """The stump, its leaves holding 10 and 20."""
    given = {
        "nodes_featureids": (1,),
        "nodes_splits": _f32([0.5]),
        "nodes_modes": np.array([0], np.uint8),
        "nodes_truenodeids": (0,),
        "nodes_falsenodeids": (1,),
        "nodes_trueleafs": (1,),
        "nodes_falseleafs": (1,),
        "leaf_targetids": (0, 0),
        "leaf_weights": _f32([10, 20]),
        "tree_roots": (0,),
    }
    yield Case("stump", cls.from_attributes(given), (X,), (_f32([[10], [20]]),))


def tree_ensemble_classifier(cls: type[Operator]) -> Iterator[Case]:
    """The stump, its leaves holding 1 for a class each."""
    leaves = {"class_treeids": (0, 0), "class_nodeids": (1, 2), "class_ids": (1, 0), "class_weights": (1.0, 1.0)}
    op = cls.from_attributes({**STUMP, **leaves, "classlabels_strings": ("a", "b")})
    yield Case("stump", op, (X,), (np.array(["b", "a"], object), _f32([[0, 1], [1, 0]])))


def tree_ensemble_regressor(cls: type[Operator]) -> Iterator[Case]:
    """The stump, its leaves holding 10 and 20."""
    leaves = {"target_treeids": (0, 0), "target_nodeids": (1, 2), "target_ids": (0, 0), "target_weights": (10.0, 20.0)}
    yield Case("stump", cls.from_attributes({**STUMP, **leaves}), (X,), (_f32([[10], [20]]),))


def zip_map(cls: type[Operator]) -> Iterator[Case]:
    """Labels of both sorts, a vector, and no samples."""
    op = cls.from_attributes({"classlabels_strings": ("a", "b", "c")})
    yield Case("strings", op, (X,), ([{"a": 1.0, "b": -2.0, "c": 3.0}, {"a": 0.0, "b": 4.0, "c": -5.0}],))
    op = cls.from_attributes({"classlabels_int64s": (7, 1, 4)})
    yield Case("vector", op, (X[0],), ([{7: 1.0, 1: -2.0, 4: 3.0}],))
    yield Case("none", op, (X[:0],), ([],))
