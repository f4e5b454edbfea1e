"""Signs of 0 are NumPy's, whatever ran before: oneDNN's cache of primitives holds steps that add 0.0 and -0.0 for equal."""

import itertools

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx import find

VALUES = np.array([*itertools.product((0.0, -0.0, 2.0, -2.0), repeat=2)], np.float32)


def op(name, **attributes):
    return find(name, 17)(**attributes)


def one_less(g, a, b, constant):
    """c - a: the other way round than oneDNN subtracts."""
    return g.node(op("Sub"), g.constant(np.full(constant, 2, np.float32)), a)


def negated_difference(g, a, b, constant):
    return g.node(op("Neg"), g.node(op("Sub"), a, b))


def less_a_difference(g, a, b, constant):
    """The difference is a step behind another primitive, to the other side."""
    return g.node(op("Sub"), b, g.node(op("Sub"), a, b))


def negated_product(g, a, b, constant):
    return g.node(op("Neg"), g.node(op("Mul"), a, b))


MAKERS = (one_less, negated_difference, less_a_difference, negated_product)


@pytest.mark.parametrize("order", list(itertools.permutations(MAKERS, 2)))
@pytest.mark.parametrize(
    ("shape", "constant"), [((3, 17), ()), ((4, 31), (31,)), ((2, 16, 3, 5), (16, 1, 1)), ((2, 7, 1, 1), (7, 1, 1))]
)
def test_signs_of_zero_do_not_depend_on_what_ran_before(order, shape, constant):
    a, b = (np.resize(VALUES[:, side], shape) for side in (0, 1))
    for make in order:
        g = GraphBuilder()
        names = [g.input(name, "float32", shape) for name in "ab"]
        model = g.model([make(g, *names, constant)])
        found, wanted = (
            next(iter(compiled({name: {"a": a, "b": b}[name] for name in compiled.inputs}).values()))
            for compiled in (dovetail.Core(config=False).compile_model(model, device) for device in ("ONEDNN", "NUMPY"))
        )
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("shape", [(3, 17), (1, 64, 14, 14)])
def test_a_difference_the_other_way_round_is_one_fast_primitive(shape):
    g = GraphBuilder()
    x = g.input("x", "float32", shape)
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(op("Sub"), g.constant(np.float32(1)), x)]), "ONEDNN")
    (node,) = compiled.report().nodes
    assert node.kernel.startswith("jit"), node
