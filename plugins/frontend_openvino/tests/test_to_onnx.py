"""IR written as .onnx: onnxruntime computes from it what openvino computes from the IR."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino as ov
import openvino.opset13 as ops
import pytest
from click.testing import CliRunner

from dovetail import Core
from dovetail.cli import program


@pytest.fixture
def network() -> ov.Model:
    """A convolution with a bias, a pool, a reshape with open batch, a product, softmax, and a split."""
    rng = np.random.default_rng(2)
    x = ops.parameter([-1, 3, 9, 7], np.float32, name="image")
    wei, bia = rng.standard_normal((4, 3, 3, 3)).astype(np.float32), rng.standard_normal((1, 4, 1, 1)).astype(np.float32)
    y = ops.relu(ops.add(ops.convolution(x, wei, [1, 1], [1, 1], [1, 1], [1, 1]), bia))
    y = ops.reduce_mean(y, np.array([2, 3]), keep_dims=False)
    y = ops.matmul(y, rng.standard_normal((4, 6)).astype(np.float32), False, False)
    first, second = ops.split(y, np.array(1), 2).outputs()
    return ov.Model([ops.softmax(first, 1), ops.tanh(second)], [x], "network")


def test_ir_becomes_onnx(network: ov.Model, saved: Callable[..., Path], openvino_core: Any, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    done = CliRunner().invoke(program, ["convert", str(saved(network)), str(target)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    session = onnxruntime.InferenceSession(target)
    (image,) = session.get_inputs()
    assert (image.name, image.shape[1:]) == ("image", [3, 9, 7])
    assert not isinstance(image.shape[0], int)
    x = np.random.default_rng(4).standard_normal((2, 3, 9, 7)).astype(np.float32)
    wanted = openvino_core.compile_model(network, "CPU")([x])
    for ours, index in zip(session.run(None, {"image": x}), range(2), strict=True):
        np.testing.assert_allclose(ours, wanted[index], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("limits", "wanted"), [([(), ()], {"Clip"}), ([(1, 3, 1), ()], {"Max", "Min"})])
def test_single_limits_of_fake_quantize_become_clip(
    limits: list[tuple[int, ...]], wanted: set[str], saved: Callable[..., Path]
) -> None:
    """Devices fuse Clip with what computes its input, and lay out no Max or Min of floats."""
    x = ops.parameter([2, 3, 5], np.float32, name="x")
    low, high = (np.full(shape, end, np.float32) for shape, end in zip(limits, (-1, 2), strict=True))
    model = ov.Model([ops.fake_quantize(x, low, high, np.float32(-1), np.float32(2), 16)], [x], "network")
    kinds = {node.op.op_type for node in Core().read_model(saved(model)).graph.nodes}
    assert kinds & {"Clip", "Max", "Min"} == wanted
