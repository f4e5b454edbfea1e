"""Operands of post-ops, the destination among them, on every device: where their memory goes, and how they broadcast."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail import PostOps
from dovetail.graph import Binary, Eltwise
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.tanh import Tanh

shared = runpy.run_path(str(Path(__file__).with_name("_post_ops.py")))
Bench, hidden, plain = (shared[n] for n in ("Bench", "hidden", "plain"))


def _residual(b: Bench, x: str, chain: PostOps) -> str:
    op = Conv(pads=(1, 1, 1, 1))
    inputs = (x, b.constant(16, 16, 3, 3, scale=1 / 12))
    return b.attach(chain, op, inputs, b.head_in_float64(op, inputs), repr(list(chain)))


SHAPE = (2, 16, 5, 7)


@pytest.fixture(params=["sum", "binary"])
def adds(request: pytest.FixtureRequest) -> Callable[[str], PostOps]:
    """The addition of an operand, as a sum and as a binary post-op."""
    if request.param == "sum":
        return lambda operand: PostOps().append_sum(operand, 0.5)
    return lambda operand: PostOps().append_binary("add", operand)


def test_the_operand_is_read_again_later(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(5))
    before = plain(b, Tanh(), b.input(*SHAPE))
    first = _residual(b, b.input(*SHAPE), adds(before).append_eltwise("relu"))
    last = plain(b, Add(), plain(b, Neg(), first), before)
    hidden(b, last)
    b.check(core, device, fusion=True)


def test_two_consumers_of_an_operand(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(6))
    before, x = plain(b, Tanh(), b.input(*SHAPE)), b.input(*SHAPE)
    one = _residual(b, x, adds(before))
    two = _residual(b, x, adds(before).append_eltwise("tanh"))
    hidden(b, plain(b, Add(), one, two))
    b.check(core, device, fusion=True)


def test_the_operand_is_what_the_node_reads(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    """conv(a) + a: a result in the memory of a would spoil the windows that are still to be read."""
    b = Bench(np.random.default_rng(7))
    before = plain(b, Tanh(), b.input(*SHAPE))
    hidden(b, _residual(b, before, adds(before)))
    b.check(core, device, fusion=True)


def test_one_operand_twice_in_a_chain(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(8))
    before = plain(b, Tanh(), b.input(*SHAPE))
    chain = PostOps((*adds(before), Eltwise("tanh"), *adds(before), Binary("mul", before)))
    hidden(b, _residual(b, b.input(*SHAPE), chain))
    b.check(core, device, fusion=True)


def test_graph_inputs_and_constants_are_only_read(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(9))
    x, r, c = b.input(*SHAPE), b.input(*SHAPE), b.constant(*SHAPE)
    for operand in (r, c):
        _residual(b, x, adds(operand))
    b.feeds = {name: array.copy() for name, array in b.feeds.items()}
    for array in b.feeds.values():
        array.flags.writeable = False
    with core.compile_model(b.model(), device) as compiled:
        results = [{k: v.copy() for k, v in compiled(b.feeds).items()} for _ in range(3)]
    for y in b.want:
        np.testing.assert_allclose(results[0][y], b.values[y], rtol=1e-4, atol=1e-5)
        assert all(np.array_equal(results[0][y], again[y]) for again in results[1:]), "a run spoils what the next one reads"


@pytest.mark.parametrize("dims", [(16, 1, 1), (1, 16, 5, 1), (7,), ()])
def test_operands_that_broadcast(core: dovetail.Core, device: str, adds: Callable[[str], PostOps], dims: tuple[int, ...]) -> None:
    b = Bench(np.random.default_rng(10))
    _residual(b, b.input(*SHAPE), adds(b.constant(*dims)).append_eltwise("relu"))
    b.check(core, device, fusion=True)


def test_residual_blocks_in_a_row(core: dovetail.Core, device: str) -> None:
    """Every operand dies in its sum, so that each result may take its memory over."""
    b = Bench(np.random.default_rng(11))
    value = plain(b, Tanh(), b.input(*SHAPE))
    for _ in range(4):
        value = _residual(b, _residual(b, value, PostOps().append_eltwise("relu")), PostOps().append_sum(value))
    hidden(b, value)
    b.check(core, device, fusion=True)
