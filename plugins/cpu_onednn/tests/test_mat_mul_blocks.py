"""Products of several rows and a matrix of 4 or 8 bits, which becomes floats in parts, against float64."""

import threading

import numpy as np
import pytest

from dovetail import Core
from dovetail.op import GraphBuilder
from dovetail_cpu_onednn.kernels import mat_mul_blocks
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import _packed_rows
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix


def _matrix(rng, bits, size, blocks, n, middle):
    scales = rng.uniform(0.1, 1, (blocks, n)).astype(np.float32)
    numbers = rng.integers(0, 2**bits, (blocks * size, n)).astype(np.uint8)
    offsets = None if middle is None else (scales * -middle).astype(np.float32)
    if bits == 4:
        matrix = BlockMatrix.of_nibbles(numbers, size, scales, offsets)
    else:
        numbers = numbers.view(np.int8) if middle is None else numbers
        matrix = BlockMatrix(8, size, numbers, scales, offsets)
    weights = numbers * scales.astype(np.float64).repeat(size, 0)
    return matrix, weights if offsets is None else weights + offsets.astype(np.float64).repeat(size, 0)


def _compiled(matrix, dims, activation_bits=0):
    g = GraphBuilder()
    return Core().compile_model(g.model([matrix.times(g, g.input("a", "float32", dims), activation_bits)]), "ONEDNN")


def _kernels(compiled):
    return [node.kernel for node in compiled.report().nodes]


def _check(compiled, a, weights, error=2e-6):
    (got,) = compiled({"a": a}).values()
    largest = np.abs(a).astype(np.float64) @ np.abs(weights)
    assert (np.abs(got - a.astype(np.float64) @ weights) <= error * largest).all()


@pytest.mark.parametrize(("size", "blocks"), [(2, 9), (32, 7), (80, 3), (600, 2)])
@pytest.mark.parametrize(("bits", "middle"), [(4, None), (4, 7.3), (8, None), (8, 128), (8, 60.5)])
@pytest.mark.parametrize("n", [3, 256, 700])
def test_products(rng, size, blocks, bits, middle, n):
    matrix, weights = _matrix(rng, bits, size, blocks, n, middle)
    k = blocks * size - 1
    compiled = _compiled(matrix, (3, 6, k))
    assert _kernels(compiled) == ["converted"]
    for _ in range(2):
        _check(compiled, (rng.standard_normal((3, 6, k)) * np.exp(rng.standard_normal(k))).astype(np.float32), weights[:k])


@pytest.mark.parametrize(("bits", "middle"), [(4, None), (4, 8), (4, 5), (4, 7.3), (8, None), (8, 128), (8, 60.5)])
@pytest.mark.parametrize(("size", "blocks", "n"), [(32, 3, 300), (80, 3, 25), (600, 2, 3)])
def test_products_of_rows_that_may_be_rounded_to_int8(rng, size, blocks, bits, middle, n):
    """In bfloat16, both factors of which are rounded to 8 bits."""
    matrix, weights = _matrix(rng, bits, size, blocks, n, middle)
    k = blocks * size - 1
    compiled = _compiled(matrix, (3, 16, k), 8)
    has_bfloat16 = library().has_bfloat16
    assert _kernels(compiled) == ["converted bf16" if has_bfloat16 else "converted"]
    for _ in range(2):
        a = (rng.standard_normal((3, 16, k)) * np.exp(rng.standard_normal(k))).astype(np.float32)
        _check(compiled, a, weights[:k], 2**-8 + 2**-17 if has_bfloat16 else 2e-6)


@pytest.mark.parametrize("middle", [None, 128])
def test_one_block_of_few_rows(rng, middle):
    matrix, weights = _matrix(rng, 8, 300, 1, 100, middle)  # small matrices are not multiplied in digits
    compiled = _compiled(matrix, (2, 300))
    assert _kernels(compiled) == ["converted"]
    _check(compiled, rng.standard_normal((2, 300)).astype(np.float32), weights)


@pytest.mark.parametrize(("dims", "n"), [((8, 64), 300), ((0, 64), 300), ((9, 64), 1)])
def test_few_rows_of_several_blocks_and_single_columns_are_left_to_the_host_kernel(rng, dims, n):
    matrix, weights = _matrix(rng, 4, 32, 2, n, 7.3)
    compiled = _compiled(matrix, dims)
    assert _kernels(compiled) == ["unpacked"]
    _check(compiled, rng.standard_normal(dims).astype(np.float32), weights)


@pytest.mark.skipif(_packed_rows.native() is None, reason="no AVX2 and FMA, or no executable memory")
@pytest.mark.parametrize(
    ("rows", "activation_bits", "kernel"), [(1, 0, "packed_rows"), (16, 0, "packed_rows"), (1, 8, "brg:"), (2, 8, "brg:")]
)
def test_rows_that_machine_code_multiplies(rng, rows, activation_bits, kernel):
    """Rows that may be rounded are products of int8, where the CPU has them."""
    kernel = kernel if library().has_int8 else "packed_rows"
    matrix, weights = _matrix(rng, 4, 32, 12, 512, 8)
    compiled = _compiled(matrix, (rows, len(weights)), activation_bits)
    assert _kernels(compiled)[-1].startswith(kernel)
    a = rng.standard_normal((rows, len(weights))).astype(np.float32)
    _check(compiled, a, weights, 2e-6 if kernel == "packed_rows" else 1e-2)


@pytest.mark.parametrize("activation_bits", [0, 8])
def test_rows_of_any_number_and_larger_parts_in_turn(monkeypatch, rng, activation_bits):
    """Parts of all sizes are made in the same memory, which grows; calls of earlier parts are made again then."""
    monkeypatch.setattr(mat_mul_blocks, "_parts", mat_mul_blocks._Parts())
    small, large = _matrix(rng, 4, 32, 2, 70, 8), _matrix(rng, 8, 128, 20, 300, 128)
    made = [(_compiled(matrix, ("rows", len(weights)), activation_bits), weights) for matrix, weights in (small, large)]
    for rows in (9, 20, 9):
        for compiled, weights in made:
            _check(
                compiled, rng.standard_normal((rows, len(weights))).astype(np.float32), weights, 1e-2 if activation_bits else 2e-6
            )


def test_infinities_and_nan(rng):
    matrix, weights = _matrix(rng, 8, 32, 2, 300, 128)
    a = rng.standard_normal((10, 64)).astype(np.float32)
    a[3, 5], a[4, 6] = np.inf, np.nan
    (got,) = _compiled(matrix, a.shape)({"a": a}).values()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, a.astype(np.float64) @ weights, rtol=1e-4, atol=1e-3)


def test_threads_have_their_own_memory(rng):
    matrix, weights = _matrix(rng, 4, 32, 8, 900, 8)
    compiled, errors = _compiled(matrix, (24, 256)), []
    arrays = [rng.standard_normal((24, 256)).astype(np.float32) for _ in range(3)]

    def run(a):
        try:
            request = compiled.create_infer_request()
            for _ in range(20):
                (got,) = request.infer({"a": a}).values()
                np.testing.assert_allclose(got, a.astype(np.float64) @ weights, rtol=1e-3, atol=1e-2)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(a,)) for a in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
