"""bfloat16: kernels on bfloat16 tensors, float32 graphs under INFERENCE_PRECISION_HINT, and CPUs that have none."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from dovetail import Core
from dovetail.device import TypedNode
from dovetail.errors import UsageError
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find

HAS_BFLOAT16 = library().has_bfloat16
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="this CPU has no instructions for bfloat16")

STEMS = (
    "conv",
    "conv_transpose",
    "gemm",
    "mat_mul",
    "average_pool",
    "max_pool",
    "global_average_pool",
    "softmax",
    "layer_normalization",
    "relu",
    "add",
    "mul",
    "transpose",
    "clip",
    "attention",
)
TOLERANCE = 0.02
"""Of the largest expected element: inputs and result are rounded to 8 bits, 2^-8 = 0.004 each."""


def rounded(array):
    return array.astype(ml_dtypes.bfloat16)


@needs_bfloat16
@pytest.mark.parametrize("operator", STEMS)
def test_a_kernel_takes_bfloat16(bench, operator):
    count = 0
    for case in bench.cases(operator):
        finite = all(a is None or (a.dtype == np.float32 and np.isfinite(a).all()) for a in (*case.inputs, *case.expected))
        # Rows whose spread is 1e-4 of their mean have none in bfloat16.
        if not finite or not case.expected[0].size or case.name == "far_from_zero":
            continue
        keep = operator == "layer_normalization"  # whose scale and shift are float32
        inputs = [a if a is None or (keep and i) else rounded(a) for i, a in enumerate(case.inputs)]
        graph = bench.single(case.op, inputs)[0]
        answer = bench.device.supports(TypedNode.of(graph.nodes[0], graph))
        if not answer or answer.kernel in ("ref", "view", "copy"):
            continue
        assert "bf16" in answer.kernel
        count += 1
        (got,) = bench.run_twice(bench.executable(graph), [a for a in inputs if a is not None])
        assert got.dtype == ml_dtypes.bfloat16
        want = case.expected[0].astype(np.float64)
        assert np.abs(got.astype(np.float64) - want).max() <= TOLERANCE * max(1.0, np.abs(want).max()), case.name
    assert count, f"no case of {operator} runs in bfloat16"


def residual_net(channels=17, size=(9, 7)):
    """conv, relu, conv + residual, relu, pool, softmax over a product; with its computation in float64 and the arrays."""
    rng = np.random.default_rng(3)
    w1, w2 = (rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / 12 for _ in range(2))
    b1, w3 = rng.standard_normal(channels).astype(np.float32), rng.standard_normal((channels, 5)).astype(np.float32)
    g = GraphBuilder()
    x = g.input("x", "float32", (2, channels, *size))
    conv = find("Conv", 17)(pads=(1, 1, 1, 1))
    first = g.node(find("Relu", 17)(), g.node(conv, x, g.constant(w1), g.constant(b1)))
    total = g.node(find("Add", 17)(), g.node(conv, first, g.constant(w2)), first)
    mean = g.node(find("GlobalAveragePool", 17)(), g.node(find("Relu", 17)(), total))
    flat = g.node(find("Flatten", 17)(), mean)
    y = g.node(find("MatMul", 17)(), flat, g.constant(w3))

    def convolved(v, w):
        padded = np.pad(v, ((0, 0), (0, 0), (1, 1), (1, 1)))
        view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        return np.einsum("nchwij,mcij->nmhw", view, w.astype(np.float64))

    def expected(v):
        a = np.maximum(convolved(v.astype(np.float64), w1) + b1.reshape(-1, 1, 1), 0)
        return np.maximum(convolved(a, w2) + a, 0).mean((2, 3)) @ w3.astype(np.float64)

    return g.model([y]), expected, rng.standard_normal((2, channels, *size)).astype(np.float32)


@needs_bfloat16
def test_a_float32_model_in_bfloat16():
    model, expected, x = residual_net()
    compiled = Core().compile_model(model, "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    (got,) = compiled({"x": x}).values()
    want = expected(x)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert got.dtype == np.float32
    assert 1e-6 < error < TOLERANCE  # what is exact was not computed in bfloat16
    kernels = {node.op: node.kernel for node in compiled.report().nodes}
    assert "bf16" in kernels["Conv"]
    assert "bf16" in kernels["MatMul"]
    assert "bf16" in kernels["GlobalAveragePool"]
    converted = [node for node in compiled.report().nodes if node.op == "dovetail::Convert"]
    assert len(converted) == 1  # the input; the product writes float32 itself


def test_float32_is_the_default():
    model, expected, x = residual_net()
    compiled = Core().compile_model(model, "ONEDNN")
    (got,) = compiled({"x": x}).values()
    np.testing.assert_allclose(got, expected(x), rtol=1e-4, atol=1e-5)
    assert not [node for node in compiled.report().nodes if node.op == "dovetail::Convert"]


@needs_bfloat16
def test_the_device_keeps_its_own_precision():
    core = Core()
    model, _, x = residual_net()
    low = core.compile_model(model, "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    full = core.compile_model(model, "ONEDNN")
    one, other = (next(iter(c({"x": x}).values())) for c in (low, full))
    assert (one != other).any()


@needs_bfloat16
@pytest.mark.parametrize("computed", [False, True])
def test_the_bias_of_a_transposed_convolution_in_bfloat16(computed):
    """It stands behind the primitive; one that is not constant is converted to bfloat16, too."""
    rng = np.random.default_rng(8)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 18, 24, 1), (18, 4, 4, 2)))
    b = (10 * rng.standard_normal(4)).astype(np.float32)
    op = find("ConvTranspose", 17)(dilations=(2, 2), pads=(1, 0, 1, 1), strides=(1, 3))
    g = GraphBuilder()
    bias = g.input("b", "float32", b.shape) if computed else g.constant(b)
    model = g.model([g.node(op, g.input("x", "float32", x.shape), g.constant(w), bias)])
    compiled = Core().compile_model(model, "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    (got,) = compiled({"x": x, "b": b} if computed else {"x": x}).values()
    want = np.asarray(op.reference(x, w, b)).reshape(got.shape)
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@needs_bfloat16
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf])
def test_activations_that_stand_alone_keep_what_is_no_number(value):
    g = GraphBuilder()
    x = g.input("x", "float32", (3, 70))
    product = g.node(find("MatMul", 17)(), x, g.constant(np.eye(70, dtype=np.float32)))
    first = g.node(find("Transpose", 17)(perm=(1, 0)), product)
    y = g.node(find("Relu", 17)(), first)
    z = g.node(find("Exp", 17)(), first)
    data = np.zeros((3, 70), np.float32)
    data[1] = np.float32(value)
    compiled = Core().compile_model(g.model([y, z]), "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    relu, exp = compiled({"x": data}).values()
    # infinity times zero is NaN in the product
    assert np.isnan(relu[:, 1]).all()
    assert np.isnan(exp[:, 1]).all()
    np.testing.assert_array_equal(relu[:, 0], 0)


@needs_bfloat16
@pytest.mark.parametrize("channels", [32, 33])
def test_a_transpose_that_writes_float32_is_not_a_view(channels):
    """It would move nothing in these layouts, but reads bfloat16; PRelu reads only float32."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 32, 8), (channels, 32, 1)))
    slope = np.array([1.25], np.float32)
    g = GraphBuilder()
    convolved = g.node(find("Conv", 17)(), g.input("x", "float32", x.shape), g.constant(w))
    turned = g.node(find("Transpose", 17)(perm=(0, 2, 1)), convolved)
    model = g.model([g.node(find("PRelu", 17)(), turned, g.constant(slope))])
    compiled = Core().compile_model(model, "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    (got,) = compiled({"x": x}).values()
    want = np.einsum("oc,bcl->blo", w[..., 0].astype(np.float64), x)
    want = np.where(want < 0, slope * want, want)
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@needs_bfloat16
def test_other_sizes_take_over_the_precision_of_nodes():
    """Values under the names that they have in the model are bfloat16, too."""
    model, expected, x = residual_net()
    compiled = Core().compile_model(model.reshape({"x": ("N", *x.shape[1:])}), "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    kernels, passes = [], []
    for data in (np.repeat(x, 2, 0), np.repeat(x, 3, 0)):
        (got,) = compiled({"x": data}).values()
        np.testing.assert_allclose(got, expected(data), rtol=0.05, atol=0.05)
        kernels.append([(node.name, node.kernel) for node in compiled.report().nodes])
        passes.append({one.name for one in compiled.report().passes})
    assert kernels[0] == kernels[1]
    assert "lower" in passes[0] - passes[1]


@needs_bfloat16
def test_batch_0():
    model, _, x = residual_net()
    compiled = Core().compile_model(model.reshape({"x": (0, 17, 9, 7)}), "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
    (got,) = compiled({"x": x[:0]}).values()
    assert got.shape == (0, 5)


def test_other_precisions_are_refused():
    with pytest.raises(UsageError, match="'f64'; accepted: f32, bf16"):
        Core().compile_model(residual_net()[0], "ONEDNN", {"INFERENCE_PRECISION_HINT": "f64"})


_OLD_CPU = """
import sys
sys.path.insert(0, sys.argv[1])
from dovetail import Core
from test_precision import residual_net
try:
    Core().compile_model(residual_net()[0], "ONEDNN", {"INFERENCE_PRECISION_HINT": "bf16"})
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_cpu_without_bfloat16_is_an_error():
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", _OLD_CPU, os.path.dirname(__file__)], capture_output=True, text=True, env=environment
    )
    assert done.stdout.startswith("DeviceUnavailable"), done.stderr
    assert "no instructions for bfloat16" in done.stdout
    assert "INFERENCE_PRECISION_HINT be 'f32'" in done.stdout
