"""Models that use the names which passes would give to what they add: each value keeps its name, its type and its content."""

import dataclasses
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import DType, Graph, Model, Node, TensorType, as_constant
from dovetail.passes import graph_pass
from dovetail_ops_onnx import find
from dovetail_ops_onnx.add import Add

Array = np.ndarray[Any, Any]
_recognised = runpy.run_path(str(Path(__file__).with_name("test_recognised.py")))
Form, FORMS = _recognised["Form"], dict(_recognised["FORMS"])
Build = Callable[[Any], str]


def form(*dims: int) -> Callable[[Build], Build]:
    """Adds a form over x [batch, *dims], of a pass that has none in `test_recognised`."""

    def added(build: Build) -> Build:
        FORMS[build] = dims
        return build

    return added


def op(name: str, **attributes: Any) -> Any:
    return find(name, 21)(**attributes)


def _scale(f: Any, dtype: str = "uint8", zero: int = 100) -> tuple[str, str]:
    return f.g.constant(np.float32(0.03)), f.g.constant(zero, dtype)


def _rounded(f: Any, x: str, dtype: str = "uint8", zero: int = 100) -> str:
    stored = f(op("QuantizeLinear"), x, *_scale(f, dtype, zero))
    return str(f(op("DequantizeLinear"), stored, *_scale(f, dtype, zero)))


def _weights(f: Any, *dims: int) -> str:
    codes = f.g.constant(np.random.default_rng(5).integers(-127, 128, dims), "int8")
    return str(f(op("DequantizeLinear"), codes, *_scale(f, "int8", 0)))


@form(3, 8, 8)
def quantized_convolutions(f: Any) -> str:
    y = f(op("Conv", pads=(1, 1, 1, 1)), _rounded(f, f.x), _weights(f, 4, 3, 3, 3))
    y = _rounded(f, f(op("Relu"), y))
    y = _rounded(f, f(op("Concat", axis=1), y, f(op("MaxPool", kernel_shape=(3, 3), pads=(1, 1, 1, 1)), y)))
    y = _rounded(f, f(op("Mul"), y, _rounded(f, f(op("Sigmoid"), y))))
    return _rounded(f, f(op("Conv"), y, _weights(f, 4, 8, 1, 1)))


@form(4, 16)
def rounded_to_16_bits(f: Any) -> str:
    return str(f(op("Relu"), _rounded(f, f(op("Add"), _rounded(f, f.x, "int16", 3), 1.0), "int16", 3)))


@form(5, 64)
def packed_weights(f: Any) -> str:
    codes = f.g.constant(np.random.default_rng(5).integers(0, 256, (64, 1024)), "uint8")
    scales = f.g.constant(np.random.default_rng(6).uniform(0.01, 0.02, (2, 1024)), "float32")
    points = f.g.constant(np.full((2, 1024), 120), "uint8")
    return str(f(op("MatMul"), f.x, f(op("DequantizeLinear", axis=0, block_size=32), codes, scales, points)))


@form(3, 4)
def einsum(f: Any) -> str:
    return str(f(op("Einsum", equation="bic,bkc->kbi"), f.x, f.x))


@form(3, 1, 4)
def reductions(f: Any) -> str:
    y = f(op("ReduceMean", keepdims=True), f(op("ReduceMean", keepdims=True), f.x, f.ints(1)), f.ints(3))
    return str(f(op("Add"), f(op("ReduceSum"), f.x, f.ints(2)), y))


@form(4, 6, 16)
def rolled(f: Any) -> str:
    parts = [f(op("Slice"), f.x, f.ints(start), f.ints(end), f.ints(1)) for start, end in ((1, 4), (0, 1))]
    y = f(op("Reshape"), f(op("Concat", axis=1), *parts), f.ints(-1, 2, 2, 6, 16))
    return str(f(op("Transpose", perm=(0, 1, 3, 2, 4)), y))


@form(6, 8)
def sum_behind_a_view(f: Any) -> str:
    y = f(op("Reshape"), f(op("MatMul"), f.x, f.some(8, 8)), f.ints(-1, 2, 3, 8))
    return str(f(op("Relu"), f(op("Add"), y, f.some(8))))


@form(5, 8)
def normalized_product(f: Any) -> str:
    y = f(op("Transpose", perm=(0, 2, 1)), f(op("MatMul"), f.x, f.some(8, 8)))
    variance = f.g.constant(np.linspace(0.5, 1, 8), "float32")
    return str(f(op("BatchNormalization"), y, *(f.some(8) for _ in range(3)), variance))


def names(graph: Graph) -> set[str]:
    return {*graph.inputs, *graph.constants, *graph.producers, *(node.name for node in graph.nodes)}


class Taken:
    """A model with what `model` has, and sums of an input and a number, one for each name of `wanted`."""

    def __init__(self, model: Model, wanted: set[str], kind: str) -> None:
        self._graph, self._kind = model.graph, kind
        self._nodes, self._constants = list(model.graph.nodes), dict(model.graph.constants)
        self._types = {**model.graph.types, "own": TensorType(DType.FLOAT32, (3,))}
        self.feeds: dict[str, Array] = {"own": np.arange(3, dtype=np.float32)}
        self.sums: dict[str, Array] = {}
        for index, name in enumerate(sorted(wanted - names(model.graph))):
            self._add(name, index)
        graph = self._graph.replace(
            nodes=tuple(self._nodes),
            inputs=(*self._graph.inputs, *self.feeds),
            outputs=(*self._graph.outputs, *self.sums),
            constants=self._constants,
            types=self._types,
        )
        self.model = dataclasses.replace(model, graph=graph)

    def _add(self, name: str, index: int) -> None:
        number, result = as_constant(np.array(index, np.float32)), f"own sum {index}"
        operand = f"own number {index}" if self._kind == "node" else name
        self._types[operand] = TensorType.of(number)
        if self._kind == "input":
            self.feeds[operand] = number
        else:
            self._constants[operand] = number
        # Nodes and values have names of their own kind.
        node, value = (name, name) if self._kind == "node" else (result, result)
        self._nodes.append(Node(node, Add(), ("own", operand), (value,)))
        self.sums[value] = self.feeds["own"] + number


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Fills with the names that passes add."""
    found: set[str] = set()
    differ = graph_pass._differ

    def noted(before: Graph, after: Graph) -> bool:
        found.update(names(after) - names(before))
        return differ(before, after)

    monkeypatch.setattr(graph_pass, "_differ", noted)
    return found


@pytest.mark.parametrize("build", FORMS, ids=lambda build: build.__name__)
def test_names_that_are_taken(core: dovetail.Core, device: str, made: set[str], build: Build) -> None:
    f = Form("float32", 2, FORMS[build])
    model = f.g.model([build(f)])
    x = np.random.default_rng(3).standard_normal((2, *FORMS[build])).astype(np.float32)
    (expected,) = core.compile_model(model, device)({"x": x}).values()
    wanted = set(made)
    for kind in ("node", "constant", "input"):
        taken = Taken(model, wanted, kind)
        result = core.compile_model(taken.model, device)({"x": x, **taken.feeds})
        np.testing.assert_allclose(result[0], expected, rtol=1e-5, atol=1e-5)
        for name, number in taken.sums.items():
            np.testing.assert_array_equal(result[name], number, err_msg=f"{kind} {name}")


def test_the_forms_are_of_many_passes(core: dovetail.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    found, guarded = set[str](), graph_pass._guarded

    def noted(graph: Graph, one: Any, context: Any) -> Graph:
        after = guarded(graph, one, context)
        found.update({one.name} if names(after) - names(graph) else ())
        return after

    monkeypatch.setattr(graph_pass, "_guarded", noted)
    for build, dims in FORMS.items():
        f = Form("float32", 2, dims)
        core.compile_model(f.g.model([build(f)]), "ONEDNN")
    assert found >= {"compute_before_views", "fold_affine", "fold_norm", "move_quantized", "pack_weights", "round_quantized"}
    assert found >= {"compose_moves", "simplify_einsum", "simplify_reductions", "tabulate_bytes"}
