"""The text in front of a custom layer's source: every define, its order and its white space."""

import math
import re
import warnings
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

from dovetail.device import DeviceInfo
from dovetail.errors import OperatorError
from dovetail_gpu_opencl.custom_layers.attributes import attribute_text
from dovetail_gpu_opencl.custom_layers.reader import read
from dovetail_gpu_opencl.custom_layers.sources import MemoryOrigin
from dovetail_gpu_opencl.custom_layers.spec import Define, Layer
from dovetail_gpu_opencl.custom_layers.text import TensorText, assemble
from dovetail_gpu_opencl.discovery import find_device

SOURCE = """__kernel void clamp_below(const __global INPUT0_TYPE* src, __global OUTPUT0_TYPE* dst)
{
    dst[get_global_id(0)] = src[get_global_id(0)];
}
"""


def layer(*defines: str) -> Layer:
    xml = f"""<CustomLayer name="ReLU" type="SimpleGPU" version="1">
      <Kernel entry="clamp_below"><Source filename="clamp.cl"/>{"".join(defines)}</Kernel>
      <Buffers><Tensor arg-index="0" type="input" port-index="0"/><Tensor arg-index="1" type="output" port-index="0"/></Buffers>
      <WorkSizes global="X,Y,B*F"/></CustomLayer>"""
    return read(MemoryOrigin({"xml": xml, "sources": {"clamp.cl": SOURCE}, "name": "f.xml"}))[0]


def test_golden_text_with_trailing_spaces() -> None:
    """A tensor of 1 x 96 x 55 x 55 in and out; the block of a tensor is written out once, for both names."""
    tensor = [
        "#define T_DIMS_SIZE 4",
        "#define T_DIMS (int []){ 1,96,55,55, } ",
        "#define T_TYPE float",
        "#define T_FORMAT_BFYX ",
        "#define T_LOWER_PADDING_SIZE 4",
        "#define T_LOWER_PADDING (int []){ 0,0,0,0, } ",
        "#define T_UPPER_PADDING_SIZE 4",
        "#define T_UPPER_PADDING (int []){ 0,0,0,0, } ",
        "#define T_PITCHES_SIZE 4",
        "#define T_PITCHES (int []){ 290400,3025,55,1, } ",
        "#define T_OFFSET 0",
    ]
    expected = [
        "// Custom Layer Built-ins",
        "#define NUM_INPUTS 1",
        "#define GLOBAL_WORKSIZE_SIZE 3",
        "#define GLOBAL_WORKSIZE (size_t []){ 55,55,96, } ",
        "#define LOCAL_WORKSIZE_SIZE 0",
        "#define LOCAL_WORKSIZE (size_t []){  } ",
        *(line.replace("T_", "INPUT0_", 1) for line in tensor),
        *(line.replace("T_", "OUTPUT0_", 1) for line in tensor),
        "",
        "// Layer relu1 using Custom Layer ReLU",
        "// Custom Layer User Defines",
        "#define neg_slope 0.0",
        "// Custom Layer Kernel clamp.cl",
        SOURCE,
    ]
    tensors = [TensorText(name, (1, 96, 55, 55), "float") for name in ("INPUT0", "OUTPUT0")]
    define = '<Define name="neg_slope" type="float" param="negative_slope" default="0.0"/>'
    for attributes in ({}, {"negative_slope": "0.0"}, {"negative_slope": 0.0}, {"other": 3}):
        assert assemble(layer(define), "relu1", attributes, tensors, (55, 55, 96), ()) == "\n".join(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("BFYX", (60, 20, 5, 1)), ("BYXF", (60, 1, 15, 3)), ("YXFB", (1, 2, 30, 6)), ("FYXB", (1, 40, 10, 2))],
)
def test_pitches_of_formats(name: str, expected: tuple[int, ...]) -> None:
    tensor = TensorText("INPUT0", (2, 3, 4, 5), "float", name)
    assert tensor.pitches == expected
    assert f"#define INPUT0_FORMAT_{name} " in tensor.lines()
    dense = np.arange(120).reshape(2, 3, 4, 5)
    order = {"BFYX": (0, 1, 2, 3), "BYXF": (0, 2, 3, 1), "YXFB": (2, 3, 1, 0), "FYXB": (1, 2, 3, 0)}[name]
    memory = dense.transpose(order).copy()
    assert tuple(memory.strides[order.index(d)] // 8 for d in range(4)) == expected


def test_pitches_and_offset_with_padding() -> None:
    """1 x 1 x 4 x 3, one row above and two columns to the left, so 5 x 5: 1 * 5 + 2 * 1 elements before the first."""
    tensor = TensorText("INPUT0", (1, 1, 4, 3), "float", lower=(0, 0, 1, 2))
    assert (tensor.pitches, tensor.offset) == ((25, 25, 5, 1), 7)
    lines = tensor.lines()
    assert "#define INPUT0_LOWER_PADDING (int []){ 0,0,1,2, } " in lines
    assert "#define INPUT0_PITCHES (int []){ 25,25,5,1, } " in lines
    assert "#define INPUT0_OFFSET 7" in lines
    wide = TensorText("INPUT0", (2, 3, 4, 5), "half", "BYXF", lower=(0, 1, 2, 3), upper=(1, 0, 1, 2))
    assert wide.pitches == (7 * 10 * 4, 1, 10 * 4, 4)
    assert wide.offset == 1 * 1 + 2 * 40 + 3 * 4
    assert "#define INPUT0_UPPER_PADDING (int []){ 1,0,1,2, } " in wide.lines()


@pytest.mark.parametrize("name", ["BFYX", "YXFB"])
def test_a_kernel_finds_its_elements_in_padded_memory(info: DeviceInfo, rng: np.random.Generator, name: str) -> None:
    """The defines as a compiler reads them: a copy out of padded memory in one format into padded memory in another."""
    dims = (2, 3, 4, 5)
    src = TensorText("INPUT0", dims, "float", name, lower=(0, 1, 2, 3), upper=(1, 0, 2, 1))
    dst = TensorText("OUTPUT0", dims, "float", "BFYX", lower=(1, 0, 0, 2), upper=(0, 0, 1, 0))
    body = """__kernel void copy(const __global INPUT0_TYPE* src, __global OUTPUT0_TYPE* dst) {
      const int x = get_global_id(0), y = get_global_id(1), bf = get_global_id(2);
      const int f = bf % INPUT0_DIMS[1], b = bf / INPUT0_DIMS[1];
      dst[b * OUTPUT0_PITCHES[0] + f * OUTPUT0_PITCHES[1] + y * OUTPUT0_PITCHES[2] + x * OUTPUT0_PITCHES[3] + OUTPUT0_OFFSET] =
          src[b * INPUT0_PITCHES[0] + f * INPUT0_PITCHES[1] + y * INPUT0_PITCHES[2] + x * INPUT0_PITCHES[3] + INPUT0_OFFSET];
    }"""
    text = assemble(layer(), "n", {}, [src, dst], (5, 4, 6), ()).replace(SOURCE, body)
    values = rng.standard_normal(dims).astype(np.float32)
    memory = placed(src, values, rng)
    context = cl.Context([find_device(info.name)])
    queue = cl.CommandQueue(context)
    target = np.full(math.prod(padded(dst)), np.nan, np.float32)
    flags = cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=array) for array in (memory, target)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # NVIDIA's compiler talks where nothing is wrong
        program = cl.Program(context, text).build(cache_dir=False)
    program.copy(queue, (5, 4, 6), None, *buffers)
    cl.enqueue_copy(queue, target, buffers[1])
    np.testing.assert_array_equal(inside(dst, target), values)
    assert np.isnan(target).sum() == target.size - values.size


def padded(tensor: TensorText) -> tuple[int, ...]:
    return tuple(n + low + high for n, low, high in zip(tensor.dims, tensor.lower, tensor.upper, strict=True))


def inside(tensor: TensorText, memory: NDArray[Any]) -> NDArray[Any]:
    """The valid elements as [B, F, Y, X], by NumPy's own arithmetic."""
    order = {"BFYX": (0, 1, 2, 3), "BYXF": (0, 2, 3, 1), "YXFB": (2, 3, 1, 0), "FYXB": (1, 2, 3, 0)}[tensor.format]
    whole = memory.reshape([padded(tensor)[d] for d in order]).transpose(np.argsort(order))
    return whole[tuple(slice(low, low + n) for low, n in zip(tensor.lower, tensor.dims, strict=True))]


def placed(tensor: TensorText, values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    memory = rng.standard_normal(math.prod(padded(tensor))).astype(values.dtype)
    inside(tensor, memory)[...] = values
    return memory


# --- the user's defines ----------------------------------------------------------------------------------------------


def defined(xml: str, **attributes: Any) -> str:
    tensors = [TensorText("INPUT0", (1, 1, 1, 1), "float"), TensorText("OUTPUT0", (1, 1, 1, 1), "float")]
    text = assemble(layer(xml), "n", attributes, tensors, (1,), ())
    return text.partition("// Custom Layer User Defines\n")[2].partition("// Custom Layer Kernel")[0]


@pytest.mark.parametrize(
    ("xml", "attributes", "expected"),
    [
        ('<Define name="A 5"/>', {}, "#define A 5 \n"),
        ('<Define name="A"/>', {}, "#define A \n"),
        ('<Define name="A" default=""/>', {}, "#define A \n"),
        ('<Define name="A" default="7"/>', {}, "#define A 7\n"),
        ('<Define name="A" type="int" default="7"/>', {"A": 3}, "#define A 7\n"),
        ('<Define name="A" type="int" param="a" default="7"/>', {"a": 3}, "#define A 3\n"),
        ('<Define name="A" type="int" param="a"/>', {"a": np.int64(-3)}, "#define A -3\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": float(np.float32(0.1))}, "#define A 0.1\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": 0.1}, "#define A 0.1\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": 1e-7}, "#define A 1e-07\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": 1.0}, "#define A 1.0\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": 2}, "#define A 2\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": math.inf}, "#define A INFINITY\n"),
        ('<Define name="A" type="float" param="a"/>', {"a": "1e-3f"}, "#define A 1e-3f\n"),
        ('<Define name="A" param="a"/>', {"a": True}, "#define A 1\n"),
        ('<Define name="A" param="a"/>', {"a": "max"}, "#define A max\n"),
        ('<Define name="A" param="a"/>', {"a": b"same_upper, 1.5e-3"}, "#define A same_upper, 1.5e-3\n"),
        ('<Define name="A" param="a" default="4"/>', {"a": None}, "#define A 4\n"),
        ('<Define name="A" type="int[]" param="a"/>', {"a": (1, 2, 3)}, "#define A (int[]) {1,2,3}\n"),
        ('<Define name="A" type="float[]" param="a"/>', {"a": (0.1, 0.25)}, "#define A (float[]) {0.1,0.25}\n"),
        ('<Define name="A" type="float[]" param="a"/>', {"a": "0.1,0.2"}, "#define A (float[]) {0.1,0.2}\n"),
        ('<Define name="A" type="float[]" default="0.1,0.1"/>', {}, "#define A (float[]) {0.1,0.1}\n"),
        ('<Define name="A" type="int[]" param="a"/>', {"a": np.array([4, 5])}, "#define A (int[]) {4,5}\n"),
    ],
)
def test_user_defines(xml: str, attributes: dict[str, Any], expected: str) -> None:
    assert defined(xml, **attributes) == expected


@pytest.mark.parametrize(
    ("xml", "value", "said"),
    [
        ('type="int"', 2.5, "is '2.5'; the Define has the type int"),
        ('type="int"', "1;while(1)", "'1;while.*the type int"),
        ('type="float"', "x", "is 'x'; the Define has the type float"),
        ('type="int[]"', (1, 2.5), "'1,2.5'.*int\\[\\]"),
        ('type="float[]"', "1,,2", "'1,,2'"),
        ("", "1\n#define get_global_id(x) 0", r"accepted: letters, digits and _ \. , \+ -"),
        ("", "1 \\", "accepted: letters"),
        ("", "1;*(__global int*)0=1", "accepted: letters"),
        ("", "atomic_inc(p)", "accepted: letters"),
        ("", "Ünicode", "accepted: letters"),
        ("", np.zeros((2, 2)), "is a ndarray"),
        ("", object(), "is a object.*numbers, bools, text"),
    ],
)
def test_attributes_that_are_no_text(xml: str, value: Any, said: str) -> None:
    with pytest.raises(OperatorError) as raised:
        defined(f'<Define name="A" {xml} param="a"/>', a=value)
    message = str(raised.value).replace("\n", " ")
    assert message.startswith("f.xml:2: the attribute 'a' ")
    assert re.search(said, message)


def test_an_attribute_that_the_node_has_not() -> None:
    with pytest.raises(OperatorError, match=r"f\.xml:2: 'A' needs the attribute 'b', which the node lacks") as raised:
        defined('<Define name="A" param="b"/>', a=3)
    assert "attributes of the node: a" in str(raised.value)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-45, 3.4e38, 1e300, -2.5e-310, 16777217.0, -0.0])
def test_decimals_read_back_equal(value: float) -> None:
    """Numbers that are float32 as float32, all others as float64."""
    define = Define("f", "A", "a", "float", None)
    assert np.float64(attribute_text(define, value)) == value
    single = np.float32(min(value, 3e38))
    assert np.float32(attribute_text(define, float(single))) == single
