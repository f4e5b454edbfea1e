"""ONNX's operators for classical machine learning: domain `ai.onnx.ml`. Loaded when a model has one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_onnx_ml.array_feature_extractor import ArrayFeatureExtractor
from dovetail_ops_onnx_ml.binarizer import Binarizer
from dovetail_ops_onnx_ml.cast_map import CastMap
from dovetail_ops_onnx_ml.category_mapper import CategoryMapper
from dovetail_ops_onnx_ml.dict_vectorizer import DictVectorizer
from dovetail_ops_onnx_ml.feature_vectorizer import FeatureVectorizer
from dovetail_ops_onnx_ml.imputer import Imputer
from dovetail_ops_onnx_ml.label_encoder import LabelEncoder_1, LabelEncoder_2, LabelEncoder_4
from dovetail_ops_onnx_ml.linear_classifier import LinearClassifier
from dovetail_ops_onnx_ml.linear_regressor import LinearRegressor
from dovetail_ops_onnx_ml.normalizer import Normalizer
from dovetail_ops_onnx_ml.one_hot_encoder import OneHotEncoder
from dovetail_ops_onnx_ml.scaler import Scaler
from dovetail_ops_onnx_ml.svm_classifier import SVMClassifier
from dovetail_ops_onnx_ml.svm_regressor import SVMRegressor
from dovetail_ops_onnx_ml.tree_ensemble import TreeEnsemble
from dovetail_ops_onnx_ml.tree_ensemble_classifier import TreeEnsembleClassifier_1, TreeEnsembleClassifier_3
from dovetail_ops_onnx_ml.tree_ensemble_regressor import TreeEnsembleRegressor_1, TreeEnsembleRegressor_3
from dovetail_ops_onnx_ml.zip_map import ZipMap

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.op import Operator

OPERATORS: "tuple[type[Operator], ...]" = (
    ArrayFeatureExtractor,
    Binarizer,
    CastMap,
    CategoryMapper,
    DictVectorizer,
    FeatureVectorizer,
    Imputer,
    LabelEncoder_1,
    LabelEncoder_2,
    LabelEncoder_4,
    LinearClassifier,
    LinearRegressor,
    Normalizer,
    OneHotEncoder,
    SVMClassifier,
    SVMRegressor,
    Scaler,
    TreeEnsemble,
    TreeEnsembleClassifier_1,
    TreeEnsembleClassifier_3,
    TreeEnsembleRegressor_1,
    TreeEnsembleRegressor_3,
    ZipMap,
)

__all__ = ["OPERATORS", "dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register every operator of the domain."""
    for operator in OPERATORS:
        registry.add(operator)
