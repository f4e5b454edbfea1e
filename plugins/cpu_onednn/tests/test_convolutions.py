"""Convolutions and resampling as they occur in published models: sound, detectors, squeeze-and-excitation."""

from dataclasses import replace

import numpy as np
import pytest

import dovetail
from dovetail.device import ANY, BYXF, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Alg, Arg, Instead
from dovetail_cpu_onednn.device import place
from dovetail_cpu_onednn.kernel import relaid
from dovetail_cpu_onednn.kernels.conv import Convolution
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.resize import Resize
from dovetail_ops_onnx.sub import Sub

RNG = np.random.default_rng(11)


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "shape", "weights"),
    [
        (Conv(strides=(16,)), (1, 1, 401), (34, 1, 40)),
        (Conv(pads=(3, 3)), (2, 16, 101), (1, 16, 7)),
        (Conv(), (3, 32, 1, 1), (8, 32, 1, 1)),
        (Conv(pads=(1, 1, 1, 1)), (1, 16, 19, 17), (1, 16, 3, 3)),
        (Conv(pads=(48, 48), dilations=(16,)), (2, 1, 500), (20, 1, 7)),
    ],
    ids=["sound", "to_one_channel", "squeezed", "mask", "gaps"],
)
def test_one_channel_or_element(bench, op, shape, weights):
    """Plain data that are channels-last data too need neither oneDNN's reference nor its copies of windows."""
    x, w = some(*shape), some(*weights) / 4
    graph = bench.single(op, [x, w], constants=[1])[0]
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = Convolution()
    chosen = kernel.plan(node, True, False)
    for config in kernel.configurations(node):
        found = kernel.final(relaid(node, config), False, chosen)
        assert found.is_slow <= chosen.is_slow, (config, found.name, chosen.name)
        assert "ref" not in found.name, config
    g = GraphBuilder()
    g.node(op, g.input("x", "float32", shape), g.constant(w), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    want = op.reference(x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "shape", "weights"),
    [
        (Conv(pads=(2, 0, 1, 0), strides=(2, 1), dilations=(2, 1)), (2, 16, 37, 1), (24, 16, 3, 1)),
        (Conv(auto_pad="SAME_UPPER"), (1, 5, 33, 1), (7, 5, 5, 1)),
        (Conv(group=3), (3, 6, 9, 1), (3, 2, 4, 1)),
        (Conv(pads=(0, 1, 0, 1), strides=(1, 3)), (1, 4, 9, 1), (8, 4, 2, 1)),  # every window reads a pad
    ],
    ids=["strides", "same", "groups", "beside"],
)
def test_images_that_are_one_pixel_wide(op, shape, weights):
    """Convolutions over time, as converters write them, run along the last axis, as do the operands of what is fused."""
    x, w, b = some(*shape), some(*weights) / 4, some(weights[0])
    y = op.reference(*(a.astype(np.float64) for a in (x, w, b)))
    others = [some(*y.shape), some(y.shape[1], 1, 1), some(y.shape[2], 1)]
    g, core = GraphBuilder(), dovetail.Core(config=False)
    value = g.node(op, g.input("x", "float32", shape), g.constant(w), g.constant(b), name="conv")
    for index, other in enumerate(others):
        value = g.node(Add(), value, g.input(f"o{index}", "float32", other.shape))
    with core.compile_model(g.model([value]), "ONEDNN") as compiled:
        found = compiled([x, *others])[0]
        (step,) = compiled.plan((x.shape, *(other.shape for other in others))).steps
        stages = [one.stage for one in step.executable.prepared["conv"]]
    np.testing.assert_allclose(found, y + sum(others), rtol=1e-4, atol=1e-4)
    assert next(a.desc.dims for a in stages[-1].arguments if a.place == "input") == (*shape[:2], 1, shape[2])


@pytest.mark.parametrize("channels", [2, 16, 33])
@pytest.mark.parametrize("op", [Conv(pads=(15, 15)), Conv(pads=(0, 4), strides=(2,), dilations=(2,))], ids=["same", "s2"])
def test_depthwise_over_time(channels, op):
    """As in Conformers, between convolutions over time; operands of what is fused have fewer axes, too."""
    op = replace(op, group=channels)
    x, w, b = some(2, 5, 40), some(channels, 1, 31 if op.strides is None else 3) / 4, some(channels)
    points = [some(channels, 5, 1) / 4, some(7, channels, 1) / 4]
    y = op.reference(*(a.astype(np.float64) for a in (Conv().reference(x.astype(np.float64), points[0]), w, b)))
    others = [some(*y.shape), some(channels, 1), some(y.shape[2])]
    g = GraphBuilder()
    value = g.node(op, g.node(Conv(), g.input("x", "float32", x.shape), g.constant(points[0])), g.constant(w), g.constant(b))
    for index, other in enumerate(others):
        value = g.node(Add(), value, g.input(f"o{index}", "float32", other.shape))
    value = g.node(Conv(), value, g.constant(points[1]))
    compiled = dovetail.Core(config=False).compile_model(g.model([value]), "ONEDNN")
    want = Conv().reference(y + sum(others), points[1])
    np.testing.assert_allclose(compiled([x, *others])[0], want, rtol=1e-4, atol=1e-4)
    assert not [n for n in compiled.report().nodes if n.kernel.startswith(("x64:gemm", "ref"))]


@pytest.mark.parametrize("channels", [2, 16, 33])
@pytest.mark.parametrize(
    "op",
    [Conv(pads=(1, 1, 1, 1)), Conv(strides=(2, 2)), Conv(pads=(4, 0, 0, 4), dilations=(2, 2))],
    ids=["same", "s2", "dilated"],
)
def test_depthwise(channels, op):
    """oneDNN's first choice for these, brdgmm_dw, is slower than its second. Alone, and with a sum behind it."""
    op = replace(op, group=channels)
    x, w, b = some(2, channels, 13, 9), some(channels, 1, 3, 3), some(channels)
    y = op.reference(*(a.astype(np.float64) for a in (x, w, b)))
    other = some(*y.shape)
    g, core = GraphBuilder(), dovetail.Core(config=False)
    name, constants = g.input("x", "float32", x.shape), (g.constant(w), g.constant(b))
    outputs = [g.node(op, name, *constants), g.node(Add(), g.node(op, name, *constants), g.input("o", "float32", y.shape))]
    with core.compile_model(g.model(outputs), "ONEDNN") as compiled:
        found = [*compiled([x, other]).values()]
        kernels = [n.kernel for n in compiled.report().nodes if n.op == "Conv"]
    np.testing.assert_allclose(found[0], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], y + other, rtol=1e-4, atol=1e-5)
    assert kernels
    assert not any("brdgmm" in kernel for kernel in kernels)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_and_add_between_convolutions(mode):
    """The neck of a detector: oneDNN's simple resampling adds the wrong elements where channels are last."""
    w = [some(24, 8, 1, 1), some(24, 24, 1, 1), some(8, 24, 1, 1)]
    coarse, fine = some(2, 8, 5, 6), some(2, 24, 10, 12)
    op = Resize(mode=mode)
    g = GraphBuilder()
    up = g.node(
        op, g.node(Conv(), g.input("coarse", "float32", coarse.shape), g.constant(w[0])), "", g.constant(np.float32([1, 1, 2, 2]))
    )
    side = g.node(Conv(), g.input("fine", "float32", fine.shape), g.constant(w[1]))
    g.node(Conv(), g.node(Add(), side, up), g.constant(w[2]), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    wide = [a.astype(np.float64) for a in (coarse, fine, *w)]
    up = op.reference(Conv().reference(wide[0], wide[2]), None, np.float32([1, 1, 2, 2]))
    want = Conv().reference(Conv().reference(wide[1], wide[3]) + up, wide[4])
    np.testing.assert_allclose(compiled({"coarse": coarse, "fine": fine})["y"], want, rtol=1e-4, atol=1e-4)
    (resize,) = [n for n in compiled.report().nodes if n.op == "Resize"]
    assert "simple" not in resize.kernel


@pytest.mark.parametrize("channels", [16, 33])
@pytest.mark.parametrize("mean", [GlobalAveragePool(), ReduceMean()], ids=["pool", "reduce"])
def test_squeeze_and_excitation(mean, channels):
    """Gates of whole channels, of each item their own: nothing is moved between the convolutions around them."""
    x = some(3, 8, 9, 7)
    w = [some(channels, 8, 3, 3) / 8, some(5, channels, 1, 1), some(channels, 5, 1, 1), some(6, channels, 3, 3) / 8]
    shift = some(channels, 1, 1)
    axes = (np.int64([2, 3]),) if isinstance(mean, ReduceMean) else ()
    g = GraphBuilder()
    wide = g.node(Conv(), g.input("x", "float32", x.shape), g.constant(w[0]))
    gate = g.node(Conv(), g.node(mean, wide, *map(g.constant, axes)), g.constant(w[1]))
    gate = g.node(HardSigmoid(), g.node(Conv(), gate, g.constant(w[2])))
    value = g.node(Sub(), g.node(Mul(), wide, gate), g.constant(shift))
    g.node(Conv(), value, g.constant(w[3]), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    wide = Conv().reference(x.astype(np.float64), w[0])
    gate = Conv().reference(Conv().reference(mean.reference(wide, *axes), w[1]), w[2])
    want = Conv().reference(wide * HardSigmoid().reference(gate) - shift, w[3])
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
    report = compiled.report()
    assert not [n for n in report.nodes if n.kernel == "ref"]
    assert report.reorders <= 2, "of the input and the output"


@pytest.mark.parametrize("shape", [(3, 1, 1, 1), (1, 1, 9, 7), (3, 24, 1, 7), (9, 7)])
def test_what_is_not_of_whole_channels(shape):
    """Numbers for items of the batch or for places are added to data that come with channels last."""
    x, w, other = some(3, 8, 9, 7), some(24, 8, 1, 1), some(*shape)
    g = GraphBuilder()
    value = g.node(Conv(), g.input("x", "float32", x.shape), g.constant(w))
    g.node(Conv(), g.node(Mul(), value, g.input("other", "float32", shape)), g.constant(w.reshape(8, 24, 1, 1)), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN", {"FUSION": False})
    want = Conv().reference(Conv().reference(x.astype(np.float64), w) * other, w.reshape(8, 24, 1, 1))
    np.testing.assert_allclose(compiled({"x": x, "other": other})["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "others", "last"),
    [
        (Mul(), [some(3, 24, 1, 1)], True),
        (Sub(), [some(24, 1, 1)], True),
        (Add(), [some(1, 1, 1, 1)], True),
        (ReduceMean(), [np.int64([-1, 2])], True),
        (Mul(), [some(1, 1, 9, 7)], False),
        (Mul(), [some(7)], False),
        (ReduceMean(), [np.int64([1])], False),
        (ReduceMean(keepdims=False), [np.int64([2, 3])], False),
    ],
)
def test_channels_last(bench, op, others, last):
    """Whatever holds for whole channels is computed with channels last as well, by another implementation than the reference."""
    graph = bench.single(op, [some(3, 24, 9, 7), *others], constants=[1])[0]
    node = TypedNode.of(graph.nodes[0], graph)
    found = [config for config in bench.device.configurations(node) if config.outputs[0] in (BYXF, ANY)]
    assert bool(found) is last
    kernel = place(node, 2).kernel
    assert all("ref" not in kernel.final(relaid(node, config), False).name for config in found if ANY not in config.outputs)


@pytest.mark.parametrize(("wanted", "is_second"), [("jit_dw:", True), ("another", False)])
def test_a_second_implementation_is_taken_by_its_name(wanted, is_second):
    lib = library()
    lib.plan_threads(1)
    data, weights, sizes = (
        lib.tagged((1, 32, 8, 8), TAG_ANY),
        lib.tagged((32, 1, 1, 3, 3), TAG_ANY),
        ((1, 1), (0, 0), (1, 1), (1, 1)),
    )
    args = ("convolution_forward", INFERENCE, Alg.CONVOLUTION_DIRECT, data, weights, None, data, *sizes)
    first = lib.describe(*args).implementation
    found = lib.describe(*args, instead=Instead(first[:9], wanted))
    assert found.implementation.startswith(wanted if is_second else first)
    assert lib.nbytes(lib.arg_md(found, Arg.SRC, data.dims)) == 4 * 32 * 8 * 8


def test_the_bias_of_transposed_convolutions_with_one_element_a_channel():
    """Several images, here in plain layout: oneDNN's binary primitive would add the bias of one channel to a vector of them."""
    x, w, bias = some(5, 32, 1, 1), some(32, 2, 1, 2), some(64)
    op = ConvTranspose(group=32, strides=(2, 1), dilations=(2, 1), pads=(0, 1, 0, 0))
    g = GraphBuilder()
    g.node(op, g.input("x", "float32", x.shape), g.constant(w), g.constant(bias), outputs=["y"])
    compiled = dovetail.Core(config=False).compile_model(g.model(["y"]), "ONEDNN")
    want = op.reference(*(array.astype(np.float64) for array in (x, w, bias)))
    np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-4, atol=1e-5)
