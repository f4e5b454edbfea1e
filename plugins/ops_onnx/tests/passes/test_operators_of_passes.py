"""A pass that names operators is skipped, its module not imported, for graphs without them: it must need one of them."""

import dataclasses
import pkgutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest

import dovetail_ops_onnx
from dovetail.graph import AbstractOperator
from dovetail.names import stem_of
from dovetail_ops_onnx.passes import PASSES, Rewriting
from dovetail_ops_onnx.passes._patterns import Op, Or, Pattern, Rule

REWRITINGS = [one.run for one in PASSES if isinstance(one.run, Rewriting)]
RECOGNISERS = [one for one in REWRITINGS if one.name in ("fuse_activations", "fuse_attention", "fuse_normalizations")]


def fits_without(pattern: Pattern, operators: frozenset[str], pairs: frozenset[tuple[str, str]], reader: str = "") -> bool:
    """Whether a graph that has none of the operators, and of each pair none that reads from the other, could match.

    `reader` is the operator that reads the result of the pattern.
    """
    if isinstance(pattern, Or):
        return any(fits_without(choice, operators, pairs, reader) for choice in pattern.choices)
    if isinstance(pattern, Op):
        fit = all(fits_without(one, operators, pairs, pattern.key) for one in pattern.inputs)
        return pattern.key not in operators and (pattern.key, reader) not in pairs and fit
    return True


@pytest.mark.parametrize("recogniser", RECOGNISERS, ids=lambda one: one.name)
def test_every_rule_needs_one_of_the_operators(recogniser: Rewriting) -> None:
    rules: Iterable[Rule] = import_module(f"dovetail_ops_onnx.passes.{recogniser.module}")._rules()
    assert [rule for rule in rules if fits_without(rule.pattern, recogniser.operators, recogniser.pairs)] == []
    assert all(fits_without(rule.pattern, frozenset(), frozenset()) for rule in rules)


def test_every_pass_names_operators_that_exist_and_a_function() -> None:
    from dovetail_ops_onnx import versions

    assert len(REWRITINGS) == len(PASSES) - 1  # keep_plans
    assert all(one.__wrapped__.__name__ == one.name for one in REWRITINGS)
    assert [one.name for one in REWRITINGS if not one.operators and not one.pairs] == [
        "take_over",
        "merge_equal_nodes",
        "widen_halves",
    ]
    named = {name for one in REWRITINGS for name in (*one.operators, *sum(one.pairs, ()))}
    made_by_passes = {"ConvIntegerToFloat", "MatMulBlocks"}
    assert {name for name in named if not versions(name)} == made_by_passes
    assert all(hasattr(import_module(f"dovetail_ops_onnx.{stem_of(name)}"), name) for name in made_by_passes)


def test_operators_of_passes_and_compositions_name_their_attributes() -> None:
    """Plans for other sizes compare them."""
    for info in pkgutil.iter_modules(dovetail_ops_onnx.__path__, "dovetail_ops_onnx."):
        import_module(info.name)
    found = [one for one in AbstractOperator.__subclasses__() if one.__module__.startswith("dovetail_ops_onnx.")]
    # These two are made of nodes, and never in a composition.
    bare = {one.__name__ for one in found if dataclasses.is_dataclass(one) and {*one.attributes} != _fields(one)}
    assert bare == {"ByLength", "Quantized"}
    assert len(found) > 10


def test_convolutions_of_alike_layers_are_equal() -> None:
    """Passes and plans group nodes by operators and attributes, which an operator of a model inside would keep apart."""
    from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat

    assert ConvIntegerToFloat(group=2) == ConvIntegerToFloat(group=2)
    assert ConvIntegerToFloat(group=2) != ConvIntegerToFloat(group=3)


def _fields(operator: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(operator)}


def test_a_model_without_them_imports_only_the_pass_for_all_graphs() -> None:
    code = """
import sys
import numpy as np
import dovetail
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax import Softmax
g = dovetail.GraphBuilder()
model = g.model([g.node(Softmax(), g.node(Relu(), g.input("x", "float32", [2, 3])), outputs=["y"])])
dovetail.Core(config=False).compile_model(model, "NUMPY")(np.ones((2, 3), np.float32))
print(*[m for m in sys.modules if m.startswith("dovetail_ops_onnx.passes")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["dovetail_ops_onnx.passes", "dovetail_ops_onnx.passes.merge_equal_nodes"]


def test_parts_of_patterns_are_asked_once() -> None:
    pattern: Pattern = Op("Relu", Pattern())
    for _ in range(60):  # 2^60 ways to the Relu
        pattern = Op("Add", pattern, pattern) | Op("Mul", pattern, pattern)
    assert pattern.operators == {"Relu": 60}
