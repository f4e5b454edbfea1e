"""The kernels for float16, built and launched directly: devices without cl_khr_fp16, such as PoCL's, never choose them."""

import warnings
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

from dovetail.graph import DType, TensorType
from dovetail.op import OpenCLKernel, Operator
from dovetail_ops_tim_vx.gemm import Gemm
from dovetail_ops_tim_vx.h_swish import HSwish
from dovetail_ops_tim_vx.softmax import Softmax

Array = NDArray[Any]


def launch(op: Operator, *inputs: Array) -> Array:
    """Output 0 of the operator's own kernel on the first OpenCL device."""
    (kernel,) = type(op).kernels
    assert isinstance(kernel, OpenCLKernel)
    types = [TensorType.of(a) for a in inputs]
    given = op.infer(*types)
    context = cl.create_some_context(interactive=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # NVIDIA's compiler remarks that kernels may be inlined
        program = cl.Program(context, kernel.define_lines(op, types, [given]) + kernel.source).build()
    queue = cl.CommandQueue(context)
    buffers = [cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(a)) for a in inputs]
    y = np.zeros(given.dims, given.dtype.numpy)
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, y.nbytes)
    entry = kernel.entry_for(types[0].dtype)
    assert entry is not None
    scalars = [np.float32(getattr(op, name)) for name, _ in kernel.scalars]
    work, local = kernel.work_sizes(types, [given])
    getattr(program, entry)(queue, work, local, *buffers, target, *scalars)
    cl.enqueue_copy(queue, y, target).wait()
    return y


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (HSwish(input_scale=1.5, output_zero_point=0.25), [(3, 7)]),
        (HSwish(output_dtype=DType.FLOAT32), [(5,)]),
        (HSwish(output_dtype=DType.UINT8, output_scale=20), [(4, 6)]),
        (Gemm(trans_b=True), [(2, 3, 5), (4, 5)]),
        (Gemm(trans_a=True), [(5, 3), (2, 5, 4)]),
        (Softmax(axis=1, beta=2), [(2, 7, 3)]),
    ],
    ids=lambda v: v.describe() if isinstance(v, Operator) else "",
)
def test_half_kernels_equal_the_references(draw: Any, op: Operator, shapes: list[tuple[int, ...]]) -> None:
    arrays = [draw(*shape, dtype="float16") for shape in shapes]
    expected = op.reference(*arrays)
    y = launch(op, *arrays)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=2e-3, atol=1e-3)


def test_bytes_become_half(draw: Any) -> None:
    x = np.arange(256, dtype=np.uint8)
    op = HSwish(input_scale=0.05, input_tail=-5.0, output_dtype=DType.FLOAT16)
    np.testing.assert_allclose(launch(op, x).astype(np.float64), op.reference(x).astype(np.float64), rtol=1e-3, atol=1e-4)
