"""Operators of the pack against onnxruntime, and what the pack promises of itself."""

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import dovetail
from dovetail.errors import OperatorError, UnknownOperator

FLOAT, INT64, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
TREE: dict[str, Any] = {
    "nodes_treeids": [0] * 5,
    "nodes_nodeids": [0, 1, 2, 3, 4],
    "nodes_featureids": [0, 1, 0, 0, 0],
    "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 3, 0, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0],
}
CASES: dict[str, tuple[str, tuple[int, ...], list[int], dict[str, Any]]] = {
    "scaler": ("Scaler", (5, 3), [FLOAT], {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 2.0, 1.0]}),
    "normalizer": ("Normalizer", (5, 3), [FLOAT], {"norm": "L2"}),
    "binarizer": ("Binarizer", (5, 3), [FLOAT], {"threshold": 0.25}),
    "linear_regressor": (
        "LinearRegressor",
        (5, 3),
        [FLOAT],
        {"coefficients": [1.0, -2.0, 3.0, 0.5, 0.25, 4.0], "intercepts": [0.5, -1.0], "targets": 2},
    ),
    "linear_classifier": (
        "LinearClassifier",
        (5, 2),
        [INT64, FLOAT],
        {
            "coefficients": [1.0, -2.0, 3.0, 0.5, 0.25, 4.0],
            "intercepts": [0.5, -1.0, 0.0],
            "classlabels_ints": [3, 5, 7],
            "post_transform": "SOFTMAX",
        },
    ),
    "tree_regressor": (
        "TreeEnsembleRegressor",
        (7, 2),
        [FLOAT],
        {
            **TREE,
            "n_targets": 1,
            "target_treeids": [0] * 3,
            "target_nodeids": [2, 3, 4],
            "target_ids": [0] * 3,
            "target_weights": [1.5, -2.5, 4.0],
        },
    ),
    "tree_classifier": (
        "TreeEnsembleClassifier",
        (7, 2),
        [STRING, FLOAT],
        {
            **TREE,
            "class_treeids": [0] * 3,
            "class_nodeids": [2, 3, 4],
            "class_ids": [0, 1, 2],
            "class_weights": [1.0, 0.75, 0.5],
            "classlabels_strings": ["no", "yes", "both"],
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(core: dovetail.Core, model: Any, rng: np.random.Generator, name: str) -> None:
    op_type, shape, outputs, attributes = CASES[name]
    x = rng.standard_normal(shape).astype(np.float32)
    file = model(op_type, [x], outputs, **attributes)
    want = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x0": x})
    x.flags.writeable = False
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        results = compiled([x])
        for i, expected in enumerate(want):
            if expected.dtype == object:
                assert results[i].tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(results[i], expected, rtol=1e-5, atol=1e-6)


def test_strings_become_numbers(core: dovetail.Core, model: Any) -> None:
    x = np.array(["b", "a", "?"], object)
    file = model("LabelEncoder", [x], [INT64], keys_strings=["a", "b"], values_int64s=[10, 20], default_int64=-5)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        assert compiled([x])[0].tolist() == [20, 10, -5]


def test_reports_name_the_pack(core: dovetail.Core, model: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 3)).astype(np.float32)
    file = model("Binarizer", [x], [FLOAT])
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        compiled([x])
        (node,) = compiled.report().nodes
        assert node.provider.startswith("dovetail-ops-onnx-reference ")


def test_operators_of_dovetail_are_left_alone(core: dovetail.Core) -> None:
    core.plugins.operator("", "TfIdfVectorizer", 9)
    for operator in core.plugins.operators(""):
        if core.plugins.provider(operator).startswith("dovetail-ops-onnx-reference"):
            with pytest.raises(UnknownOperator):
                dovetail.Core(plugins="-dovetail-ops-onnx-reference").plugins.operator("", operator.op_type, operator.since)


def test_onnx_is_not_imported_for_other_models() -> None:
    code = (
        "import sys, numpy, dovetail\n"
        "from dovetail.op import UnboundOperator\n"
        "g = dovetail.GraphBuilder()\n"
        "x = g.input('x', 'float32', [3])\n"
        "model = g.model([g.node(UnboundOperator('', 'Relu', 14, {}), x, outputs=['y'])])\n"
        "dovetail.Core().compile_model(model, 'NUMPY')([numpy.zeros(3, 'float32')])\n"
        "assert not {'onnx', 'dovetail_ops_onnx_reference'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_what_onnx_reference_refuses_is_an_error_that_names_the_node(core: dovetail.Core, model: Any) -> None:
    x = np.zeros((2, 3), np.float32)
    file = model("Scaler", [x], [FLOAT], offset=[1.0, 2.0], scale=[1.0, 2.0])
    with (
        core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled,
        pytest.raises(OperatorError, match=r"Scaler\).*onnx.reference: "),
    ):
        compiled([x])


@pytest.mark.parametrize(("domain", "op_type"), [("ai.onnx.preview.training", "Gradient"), ("ai.onnx.ml", "ZipMap")])
def test_what_onnx_reference_lacks_stays_unknown(core: dovetail.Core, domain: str, op_type: str) -> None:
    with pytest.raises(UnknownOperator, match=op_type):
        core.plugins.operator(domain, op_type, 20)


def test_every_registered_operator_has_an_implementation() -> None:
    from onnx.reference.ops.aionnxml import _op_list as ml

    assert not {"CastMap", "CategoryMapper", "ZipMap"} & set(dir(ml))
    named = {f"{o.op_type}" for o in dovetail.Core().plugins.operators("ai.onnx.ml")}
    assert {name for name in named if not any(known == name or known.startswith(f"{name}_") for known in dir(ml))} == set()
