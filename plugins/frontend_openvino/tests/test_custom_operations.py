"""Operations of an extension: served by operators of packs and by custom layers, by their type name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

import dovetail
from dovetail.errors import OperatorError, UnknownOperator
from dovetail.op import FLOATS, Operator, Translation
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sigmoid import Sigmoid

KERNEL = """
__kernel void leaky_kernel(const __global INPUT0_TYPE* src, __global OUTPUT0_TYPE* dst) {
    const uint x = get_global_id(0), y = get_global_id(1), feature = get_global_id(2);
    for (uint batch = 0; batch < INPUT0_DIMS[0]; batch++) {
        const uint from = INPUT0_OFFSET + batch * INPUT0_PITCHES[0] + feature * INPUT0_PITCHES[1]
                          + y * INPUT0_PITCHES[2] + x * INPUT0_PITCHES[3];
        const uint to = OUTPUT0_OFFSET + batch * OUTPUT0_PITCHES[0] + feature * OUTPUT0_PITCHES[1]
                        + y * OUTPUT0_PITCHES[2] + x * OUTPUT0_PITCHES[3];
        const INPUT0_TYPE value = src[from];
        dst[to] = value < 0 ? value * neg_slope : value;
    }
}
"""
LAYER = """<CustomLayer name="ReLU" type="SimpleGPU" version="1">
  <Kernel entry="leaky_kernel">
    <Source filename="leaky_kernel.cl"/>
    <Define name="neg_slope" type="float" param="negative_slope" default="0.0"/>
  </Kernel>
  <Buffers>
    <Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>
    <Tensor arg-index="1" type="output" port-index="0" format="BFYX"/>
  </Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  <WorkSizes global="X,Y,F"/>
</CustomLayer>
"""


class ReLU(ov.Op):
    """An operation of a type that openvino knows too, but of an extension (`version="extension"`); with an attribute."""

    def __init__(self, inputs: Any = None, slope: float = 0.0) -> None:
        super().__init__(self, inputs)
        self.slope = slope
        if inputs is not None:
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: Any) -> "ReLU":
        return ReLU(inputs, self.slope)

    def visit_attributes(self, visitor: Any) -> bool:
        attributes = {"negative_slope": self.slope}
        visitor.on_attributes(attributes)
        return True


def _graph(activation: Callable[[Any], Any]) -> ov.Model:
    """A convolution, an activation, a pooling."""
    from openvino import opset13

    x = opset13.parameter([2, 3, 9, 8], np.float32, name="image")
    w = opset13.constant(np.random.default_rng(4).standard_normal((4, 3, 3, 3)).astype(np.float32))
    active = activation(opset13.convolution(x, w, [1, 1], [1, 1], [1, 1], [1, 1]))
    active.set_friendly_name("relu1")
    pooled = opset13.max_pool(active, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2])
    return ov.Model([opset13.result(pooled.output(0), name="pooled")], [x], "m")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The graph with an operation of an extension, as openvino saves it."""
    path = tmp_path / "model.xml"
    ov.save_model(_graph(lambda x: ReLU([x], 0.25)), path, compress_to_fp16=False)
    assert 'type="ReLU" version="extension"' in path.read_text()
    return path


def _expected(openvino_core: ov.Core, feed: Any) -> Any:
    """The graph with openvino's own PReLU in place of the operation."""
    graph = _graph(lambda x: ov.opset13.prelu(x, ov.opset13.constant(np.float32([0.25]))))
    return openvino_core.compile_model(graph, "CPU")([feed])[0]


def test_custom_layer(model: Path, tmp_path: Path, openvino_core: ov.Core) -> None:
    """The custom layer runs on OPENCL with the file's own text of the attribute."""
    text = model.read_text()
    assert text.count('negative_slope="0.25"') == 1
    model.write_text(text.replace('negative_slope="0.25"', 'negative_slope="2.50e-1"'))
    (tmp_path / "leaky_kernel.cl").write_text(KERNEL)
    (tmp_path / "layers.xml").write_text(LAYER)
    core = dovetail.Core()
    core.set_property("OPENCL", {"CONFIG_FILE": str(tmp_path / "layers.xml"), "DUMP_KERNELS": str(tmp_path / "dumped")})
    compiled = core.compile_model(core.read_model(model), "OPENCL")
    assert {n.name: n.kernel for n in compiled.report().nodes}["relu1"] == "custom layer ReLU (layers.xml)"
    feed = np.random.default_rng(5).standard_normal((2, 3, 9, 8)).astype(np.float32)
    np.testing.assert_allclose(compiled([feed])[0], _expected(openvino_core, feed), rtol=1e-4, atol=1e-4)
    dumped = [path.read_text() for path in (tmp_path / "dumped").iterdir()]
    assert any("#define neg_slope 2.50e-1\n" in text and "// Layer relu1 using Custom Layer ReLU" in text for text in dumped)


def test_operator_of_a_pack(model: Path, openvino_core: ov.Core) -> None:
    """An operator whose class says that the extension's type is its; its attributes are read from text."""

    class Slope(Operator):
        domain = "my.ops"
        inputs = ("X: T",)
        types = {"T": FLOATS}
        translations = (Translation(domain="extension", op_type="ReLU", attributes={"negative_slope": "alpha"}),)
        alpha: float
        sizes: tuple[int, ...] = ()
        flag: bool = False
        word: str = ""

        def reference(self, X: Any) -> Any:
            assert (self.sizes, self.flag, self.word) == ((1, 2), True, "a,b")
            return np.where(X < 0, X * X.dtype.type(self.alpha), X)

    model.write_text(model.read_text().replace("negative_slope=", 'sizes="1, 2" flag="true" word="a,b" negative_slope='))
    feed = np.random.default_rng(5).standard_normal((2, 3, 9, 8)).astype(np.float32)
    core = dovetail.Core()
    core.add_extension(Slope)
    found = core.compile_model(core.read_model(model), "NUMPY")([feed])[0]
    text = model.read_text().replace('sizes="1, 2" flag="true" word="a,b" ', "")
    model.write_text(text)
    np.testing.assert_allclose(found, _expected(openvino_core, feed), rtol=1e-4, atol=1e-5)
    model.write_text(text.replace('negative_slope="0.25"', 'negative_slope="steep"'))
    with pytest.raises(OperatorError, match=r"attribute 'alpha' is 'steep' .*; accepted: float"):
        core.compile_model(core.read_model(model), "NUMPY")


def test_unknown_operation_of_an_extension(model: Path, core: Any) -> None:
    read = core.read_model(model)
    assert read.opsets["extension"] == 1
    with pytest.raises(UnknownOperator, match=r"relu1.*extension::ReLU"):
        core.compile_model(read, "NUMPY")


def _swish(g: Any, X: str, *, beta: float = 1.0, flag: bool = False) -> Any:
    assert flag
    return g.node(Mul(), X, g.node(Sigmoid(), g.node(Mul(), X, g.constant(beta, g.type_of(X).dtype))))


@pytest.mark.parametrize("version", ["extension", "opset99"])
def test_translations(model: Path, version: str, openvino_core: ov.Core) -> None:
    """To an operator and to a sub-graph, of an extension and of a newer operator set; attributes are read from text."""
    model.write_text(model.read_text().replace('type="ReLU" version="extension"', f'type="Novel" version="{version}"'))
    feed = np.random.default_rng(5).standard_normal((2, 3, 9, 8)).astype(np.float32)
    core = dovetail.Core()
    with pytest.raises(UnknownOperator, match=rf"'relu1' .*no operator {version}::Novel is known"):
        core.compile_model(model, "NUMPY")
    core.add_extension(Translation(domain=version, op_type="Novel", to=LeakyRelu, attributes={"negative_slope": "alpha"}))
    compiled = core.compile_model(model, "NUMPY")
    np.testing.assert_allclose(compiled([feed])[0], _expected(openvino_core, feed), rtol=1e-4, atol=1e-5)

    core.add_extension(Translation(domain=version, op_type="Novel", to=_swish, attributes={"negative_slope": "beta"}))
    model.write_text(model.read_text().replace("negative_slope=", 'flag="true" negative_slope='))
    swish = _graph(lambda x: ov.opset13.swish(x, ov.opset13.constant(np.float32(0.25))))
    expected = openvino_core.compile_model(swish, "CPU")([feed])[0]
    np.testing.assert_allclose(core.compile_model(model, "NUMPY")([feed])[0], expected, rtol=1e-4, atol=1e-5)
    model.write_text(model.read_text().replace('flag="true"', 'flag="maybe"'))
    with pytest.raises(OperatorError, match=r"'relu1' .*'flag' is 'maybe' .*; accepted: bool"):
        core.compile_model(model, "NUMPY")


def test_a_custom_layer_goes_before_a_translation(model: Path, tmp_path: Path, openvino_core: ov.Core) -> None:
    (tmp_path / "leaky_kernel.cl").write_text(KERNEL)
    (tmp_path / "layers.xml").write_text(LAYER)
    core = dovetail.Core()
    core.set_property("OPENCL", {"CONFIG_FILE": str(tmp_path / "layers.xml")})
    core.add_extension(Translation(domain="extension", op_type="ReLU", to=_swish))
    compiled = core.compile_model(model, "OPENCL")
    assert {n.name: n.kernel for n in compiled.report().nodes}["relu1"] == "custom layer ReLU (layers.xml)"
    feed = np.random.default_rng(5).standard_normal((2, 3, 9, 8)).astype(np.float32)
    np.testing.assert_allclose(compiled([feed])[0], _expected(openvino_core, feed), rtol=1e-4, atol=1e-4)
