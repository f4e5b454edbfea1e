"""ConvTranspose on random geometries, against the contributions of single elements in float64."""

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.spatial import conv_transpose_geometry


def direct(x, w, bias, group, g):
    """Each element of x times the kernel, added where it belongs. Infinities meet only weights that exist."""
    maps, channels = w.shape[1], w.shape[0] // group
    y = np.zeros((len(x), maps * group, *g.output))
    for index in np.ndindex(*g.input):
        for k in np.ndindex(*g.kernel):
            at = tuple(i * s - b + n for i, s, b, n in zip(index, g.strides, g.pads_begin, k, strict=True))
            if all(0 <= a < o for a, o in zip(at, g.output, strict=True)):
                for part in range(group):
                    own = slice(part * channels, (part + 1) * channels)
                    with np.errstate(invalid="ignore"):
                        product = x[(slice(None), own, *index)].astype(np.float64) @ w[(own, slice(None), *k)].astype(np.float64)
                        y[(slice(None), slice(part * maps, (part + 1) * maps), *at)] += product
    return y + bias.astype(np.float64).reshape(-1, *(1,) * g.rank)


def random_case(seed):
    """x, w, bias, attributes."""
    rng = np.random.default_rng(seed)
    rank, group = 1 + seed % 2, int(rng.integers(1, 4))
    sizes, kernel, strides = (tuple(int(n) for n in rng.integers(1, high, rank)) for high in (6, 6, 4))
    extra = tuple(int(rng.integers(0, s)) for s in strides)
    attributes = {"strides": strides, "group": group}
    kind = seed % 4
    if kind == 0:
        attributes |= {"output_padding": extra, "pads": tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))}
    elif kind == 1:
        attributes["output_shape"] = tuple(int(n) for n in rng.integers(1, 16, rank))
    elif kind == 2:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    x = rng.standard_normal((int(rng.integers(0, 3)), group * int(rng.integers(1, 4)), *sizes))
    w = rng.standard_normal((x.shape[1], int(rng.integers(1, 4)), *kernel))
    dtype = np.float64 if seed % 5 == 0 else np.float32
    return x.astype(dtype), w.astype(dtype), rng.standard_normal(w.shape[1] * group).astype(dtype), attributes


@pytest.mark.parametrize("infinite", ["nothing", "input", "weights"])
@pytest.mark.parametrize("seed", range(60))
def test_conv_transpose(bench, seed, infinite):
    x, w, bias, attributes = random_case(seed)
    if infinite == "input" and x.size:
        x.reshape(-1)[-1] = np.inf
    if infinite == "weights":
        w.reshape(-1)[-1] = -np.inf
    names = {n: v for n, v in attributes.items() if n != "group"}
    g = conv_transpose_geometry(x.shape[2:], w.shape[2:], **names)
    got = bench.run_one(
        ConvTranspose(**attributes), (x, w, bias), bench.kernel("conv_transpose", "interleaved"), constants=(1, 2)
    )
    np.testing.assert_allclose(got, direct(x, w, bias, attributes["group"], g), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"dilations": (2, 1)}, {}])
def test_what_the_reference_runs(bench, attributes):
    """Dilations, and weights that are computed."""
    x, w = np.ones((1, 2, 3, 3), np.float32), np.ones((2, 1, 2, 2), np.float32)
    graph = bench.single(ConvTranspose(**attributes), [x, w], (1,) if attributes else ())[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ref"


def test_many_products_with_zeros_are_left_to_the_reference(bench):
    """A stride of 2 and three kernel elements waste 7 of 16 products; with groups the reference is slower still."""
    x = np.ones((1, 64, 20, 20), np.float32)
    for group, name in ((1, "ref"), (2, "interleaved")):
        w = np.ones((64, 32 // group, 3, 3), np.float32)
        graph = bench.single(ConvTranspose(strides=(2, 2), group=group), [x, w], (1,))[0]
        assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == name
