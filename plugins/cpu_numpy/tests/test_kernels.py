"""Every kernel of every list by itself: the shipped cases that it accepts, and post-ops behind it."""

import dataclasses

import numpy as np

from dovetail.device import Binary, Eltwise, TypedNode
from dovetail.op import Operator
from dovetail.testing import passed


def accepted(bench, stem, kernel):
    """(case, graph) for the cases that the kernel accepts; each also with all inputs but the first as constants."""
    found = []
    for case in bench.cases(stem):
        fixed = dataclasses.replace(case, constants=tuple(i for i, x in enumerate(case.inputs) if i and x is not None))
        for variant in (case, fixed):
            graph = bench.typed(variant.model().graph)
            if kernel.supports(TypedNode.of(graph.nodes[0], graph)):
                found.append((variant, graph))
    return found


def test_cases(bench, listed):
    stem, kernel = listed
    cases = accepted(bench, stem, kernel)
    assert cases, f"no case of {stem} is accepted by {kernel}"
    for case, graph in cases:
        executable = bench.executable(graph, {graph.nodes[0].name: kernel})
        outputs = bench.run_twice(executable, [case.feeds()[name] for name in graph.inputs])
        assert not (wrong := passed(case, outputs)), f"{case.name}: {wrong}"


def test_inputs_are_only_read_and_may_be_awkward(bench, listed):
    for case, graph in accepted(bench, *listed):
        feeds = [awkward(case.feeds()[name]) for name in graph.inputs]
        before = [a.copy() for a in feeds]
        request = bench.executable(graph, {graph.nodes[0].name: listed[1]}).create_request()
        assert not (wrong := passed(case, request.run(feeds))), f"{case.name}: {wrong}"
        for array, copy in zip(feeds, before, strict=True):
            np.testing.assert_array_equal(array, copy)


class Copy(Operator):
    """A value of its own, with the content of the input."""

    domain = "test"

    def reference(self, X):
        return X.copy()


def test_inputs_that_nobody_needs_any_more(bench, listed):
    """Each input in turn dies at the node, so that its memory may be taken over; the others live on."""
    for case, graph in accepted(bench, *listed):
        (node,) = graph.nodes
        for name in graph.inputs:
            copied = type(node)("copy", Copy(), (name,), ("copied",))
            inputs = tuple("copied" if n == name else n for n in node.inputs)
            pair = (copied, dataclasses.replace(node, inputs=inputs))
            executable = bench.executable(graph.replace(nodes=pair), {node.name: listed[1]})
            outputs = bench.run_twice(executable, [case.feeds()[n] for n in graph.inputs])
            assert not (wrong := passed(case, outputs)), f"{case.name}, {name}: {wrong}"


def awkward(array):
    """The same values read-only, with gaps between the elements and, from two axes on, the first axis backwards."""
    if array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    if array.ndim > 1:
        array = np.repeat(array[::-1], 2, axis=-1)[::-1, ..., ::2]
    array.flags.writeable = False
    return array


def test_post_ops_behind_the_kernel(bench, listed):
    """A chain of three against the same steps in float64 on the expected result without a chain."""
    rng = np.random.default_rng(11)
    for case, plain in accepted(bench, *listed):
        if len(case.expected) != 1 or case.expected[0].dtype not in (np.float32, np.float64):
            continue
        operand = rng.standard_normal(case.expected[0].shape[-1:]).astype(case.expected[0].dtype)
        graph = bench.with_constant(plain, "operand", operand)
        chain = (Eltwise("linear", 0.5, -0.25), Binary("mul", "operand"), Eltwise("tanh"))
        node = dataclasses.replace(plain.nodes[0], post_ops=chain)
        executable = bench.executable(graph.replace(nodes=(node,)), {node.name: listed[1]})
        (got,) = bench.run_twice(executable, [case.feeds()[name] for name in graph.inputs])
        with np.errstate(all="ignore"):
            want = np.tanh((0.5 * case.expected[0].astype(np.float64) - 0.25) * operand)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=case.name)
