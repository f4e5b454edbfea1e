"""Plans of GPUs with merged elementwise nodes and moves are kept in `CACHE_DIR`, exported and imported: same nodes, same bits."""

import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DType, TensorType
from dovetail.errors import DovetailError, ShapeError
from dovetail.graph import GraphBuilder
from dovetail_gpu_opencl import kernels
from dovetail_gpu_opencl.elementwise import Elementwise
from dovetail_gpu_opencl.kernels._copy import MoveKernel
from dovetail_gpu_opencl.kernels._fused_elementwise import FusedElementwise
from dovetail_gpu_opencl.table import listed, named
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

Build = Callable[[GraphBuilder, Any], Any]


def _tree(g: GraphBuilder, x: Any) -> Any:
    """A sum of two products of functions, whose constants broadcast."""
    scale = g.constant(np.arange(1, 8, dtype=np.float32))
    return g.node(Add(), g.node(Mul(), g.node(Tanh(), x), scale), g.node(Mul(), g.node(Sigmoid(), x), x))


def _reader(g: GraphBuilder, x: Any) -> Any:
    return g.node(ReduceMean(keepdims=0), _tree(g, x), g.constant(np.array([2])))


def _gate(g: GraphBuilder, x: Any) -> Any:
    value, gate = g.node(Split(axis=1, num_outputs=2), x, outputs=["p0", "p1"])
    return g.node(Mul(), value, g.node(Sigmoid(), gate))


def _moves(g: GraphBuilder, x: Any) -> Any:
    first, second = g.node(Split(axis=1, num_outputs=2), x, outputs=["p0", "p1"])
    turned = [g.node(Transpose(perm=(0, 2, 1)), one) for one in (second, first)]
    return g.node(Relu(), g.node(Concat(axis=2), *turned))


@pytest.mark.exhaustive(0.5)  # each compiles programs
@pytest.mark.parametrize(
    ("build", "kernel"),
    [(_tree, "fused_elementwise"), (_reader, "fused_reduce"), (_gate, "moved_operands"), (_moves, "copy")],
)
def test_merged_nodes_are_stored(build: Build, kernel: str, gpu: dovetail.Core, tmp_path: Path, rng: Any, kept: Path) -> None:
    g = GraphBuilder()
    gpu.write_model(g.model([build(g, g.input("x", "float32", ("N", 6, 7)))]), tmp_path / "m.onnx")
    inputs = [rng.standard_normal((n, 6, 7)).astype(np.float32) for n in (2, 3)]
    properties = {"CACHE_DIR": str(tmp_path / "plans")}
    first = gpu.compile_model(tmp_path / "m.onnx", "OPENCL.0", properties)
    expected = [first([x])[0].copy() for x in inputs]
    plain = dovetail.Core(config=False).compile_model(tmp_path / "m.onnx", "NUMPY")
    for x, y in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(y, plain([x])[0], rtol=1e-5, atol=1e-6)
    first.export_model(tmp_path / "m.plans")
    for again in (dovetail.Core().compile_model(tmp_path / "m.onnx", "OPENCL.0", properties), _imported(tmp_path / "m.plans")):
        for x, y in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(again([x])[0], y)
        shapes = {"x": inputs[0].shape}
        assert "nodes" not in vars(again.model.graph)  # nobody read the model
        assert [n.kernel for n in again.report(shapes).nodes] == [n.kernel for n in first.report(shapes).nodes]
        assert kernel in {n.kernel for n in again.report(shapes).nodes}


def _imported(path: Path) -> dovetail.CompiledModel:
    return dovetail.Core().import_model(path)


def test_no_operator_has_two_such_kernels_of_one_name() -> None:
    """Their names are what files have of them."""
    twice = []
    for module in pkgutil.iter_modules(kernels.__path__):
        found = () if module.name.startswith("_") else import_module(f"{kernels.__name__}.{module.name}").KERNELS
        names = [kernel.name for kernel in found if isinstance(kernel, Elementwise | MoveKernel)]
        twice += [(module.name, name) for name in {*names} if names.count(name) > 1]
    assert not twice


def test_a_name_of_no_kernel_is_refused(kind_device: Callable[[str], Any]) -> None:
    bound = listed(Sigmoid())[-1].on(kind_device("GPU").caps)
    assert named("chain", Sigmoid(), bound).caps is bound.caps
    with pytest.raises(DovetailError, match="Sigmoid has no kernel 'nowhere'"):
        named("nowhere", Sigmoid(), bound)


@pytest.mark.parametrize("dims", [(2, 6, 5), (3, 7), (8,)])
def test_values_that_do_not_broadcast_are_refused(dims: tuple[int, ...], kind_device: Callable[[str], Any], bench: Any) -> None:
    """As in a file that was tampered with: kernels trust types."""
    g = GraphBuilder()
    graph = kind_device("GPU").lower(bench.typed(g.graph([_tree(g, g.input("x", "float32", (2, 6, 7)))])))
    (op,) = (node.op for node in graph.nodes)
    assert isinstance(op, FusedElementwise)
    types = [TensorType(DType.FLOAT32, (2, 6, 7) if place else dims) for place in range(len(op.reads))]
    with pytest.raises((ShapeError, ValueError)):
        op.infer(*types)
