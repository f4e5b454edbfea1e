"""Operands along the last axis behind a binary primitive: oneDNN 3.12's kernel is wrong for them where data are channels last."""

import numpy as np
import pytest

import dovetail
from dovetail.device import BYXF, PLAIN, Layout, Refusal, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import require_no_columns
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_which_operands_are_refused(rank):
    dims = (2, 4, *range(3, rank + 1))
    strides = np.cumprod((1, dims[1], *dims[:1:-1]))
    last = library().strided(dims, (int(strides[-1]), 1, *map(int, strides[-2:0:-1])))
    row = plain((*(1,) * (rank - 1), dims[-1]))
    require_no_columns(plain(dims), [row])
    others = [plain((1, 4, *(1,) * (rank - 2))), plain((1,) * rank), last, *([plain((1, 1, *dims[2:]))] if rank > 3 else [])]
    require_no_columns(last, others)
    with pytest.raises(Refused, match="along the last axis"):
        require_no_columns(last, [*others, row])


@pytest.mark.parametrize(("layout", "is_refused"), [(PLAIN, False), (BYXF, True)])
def test_a_binary_primitive_with_such_a_post_op(bench, layout: Layout, is_refused: bool):
    """Refused by this reason, whatever implementation oneDNN would choose."""
    x, row = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32), RNG.standard_normal(5).astype(np.float32)
    g = GraphBuilder()
    y = g.node(Mul(), g.node(Tanh(), g.input("x", "float32", x.shape)), g.constant(row))
    graph = fuse_post_ops(bench.typed(g.graph([y])), bench.device.supports).graph
    node = TypedNode.of(graph.nodes[0], graph)
    assert node.node.post_ops
    relaid = TypedNode(
        node.node, tuple(t and t.with_layout(layout) for t in node.inputs), (node.outputs[0].with_layout(layout),), node.operands
    )
    answer = ElementwiseKernel().supports(relaid)
    assert isinstance(answer, Refusal) == is_refused
    assert not is_refused or "along the last axis" in answer.detail


@pytest.mark.parametrize("op", [Mul(), Add()])
@pytest.mark.parametrize("kernel", [2, 3], ids=["product", "deconvolution"])
def test_behind_transposed_convolutions(op, kernel):
    w, row = RNG.standard_normal((24, 24, kernel, kernel)).astype(np.float32), RNG.standard_normal(16 - kernel).astype(np.float32)
    up = ConvTranspose(strides=(2, 2), pads=(kernel - 2,) * 4)
    x = RNG.standard_normal((1, 24, 5, 7)).astype(np.float32)
    want = up.reference(x.astype(np.float64), w.astype(np.float64))
    row = row[:1].repeat(want.shape[-1]) * np.arange(1, want.shape[-1] + 1, dtype=np.float32)
    g = GraphBuilder()
    y = g.node(op, g.node(Relu(), g.node(up, g.input("x", "float32", x.shape), g.constant(w))), g.constant(row))
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        found = compiled(x)[0]
    np.testing.assert_allclose(found, op.reference(np.maximum(want, 0), row.astype(np.float64)), rtol=1e-4, atol=1e-4)
