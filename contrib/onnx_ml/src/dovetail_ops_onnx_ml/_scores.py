"""How classifiers and regressors transform their scores, as ONNX Runtime does."""

import math

import numpy as np

from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array

__all__ = ["TRANSFORMS", "check_one_score", "check_transform", "logistic", "transformed", "two_classes"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The values of `post_transform`, by their number in TreeEnsemble."""


def check_transform(name: str) -> None:
    """Raise `OperatorError` for another value of `post_transform`."""
    if name not in TRANSFORMS:
        raise OperatorError(f"attribute 'post_transform' is {name!r}; accepted: {', '.join(TRANSFORMS)}")


def transformed(scores: Array, name: str) -> Array:
    """Scores [samples, classes] after `post_transform`. One score alone takes PROBIT and no other, as in ONNX Runtime."""
    if name == "NONE" or (scores.shape[1] == 1 and name != "PROBIT"):
        return scores
    with np.errstate(all="ignore"):
        if name == "LOGISTIC":
            return logistic(scores)
        if name == "PROBIT":
            return _probit(scores)
        # Class by class: NumPy takes 30 ns for the greatest of each short row.
        classes = np.ascontiguousarray(scores.T)
        e = np.exp(classes - np.maximum.reduce(classes, axis=0, initial=-np.inf))
        if name == "SOFTMAX_ZERO":  # what is 0 stays 0
            e = np.where(np.abs(classes) > 1e-7, e, 0)
        total = np.add.reduce(e, axis=0)
        shares = e / total if name == "SOFTMAX" else np.where(total == 0, 0.5, e / np.where(total == 0, 1, total))
        return np.ascontiguousarray(shares.T)


def two_classes(score: Array, name: str, *, positive: bool) -> Array:
    """Both classes' scores [samples, 2] from one: s and 1 - s where it is a share (`positive`), else s and -s; or LOGISTIC."""
    found = np.empty((score.size, 2), score.dtype)
    if name == "LOGISTIC":
        e = np.exp(-np.abs(score))
        less, more = e / (1 + e), 1 / (1 + e)
        found[:, 0], found[:, 1] = np.where(score > 0, less, more), np.where(score < 0, less, more)
    else:
        found[:, 0], found[:, 1] = 1 - score if positive else -score, score
    return found


def check_one_score(name: str) -> None:
    """Raise `OperatorError` for the one transform that is not defined where two classes share a score."""
    if name == "PROBIT":
        raise OperatorError("attribute 'post_transform' is 'PROBIT' for two classes with one score; accepted: any other")


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def _probit(p: Array) -> Array:
    """The quantile of the normal distribution, by the approximation of the inverse error function that ONNX Runtime has."""
    with np.errstate(all="ignore"):
        x = 2 * p - 1
        log = np.log((1 - x) * (1 + x))
        v = 2 / (math.pi * 0.147) + 0.5 * log
        inverse = np.sqrt(-v + np.sqrt(v * v - log / 0.147))
        found: Array = math.sqrt(2) * np.sign(x) * inverse
    return found
