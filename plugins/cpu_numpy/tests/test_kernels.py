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


def test_kernel(bench, listed):
    """Every case that the kernel accepts: by itself, with awkward inputs, in memory that is shared, and with post-ops behind."""
    stem, kernel = listed
    cases = accepted(bench, stem, kernel)
    assert cases, f"no case of {stem} is accepted by {kernel}"
    for case, graph in cases:
        executable = bench.executable(graph, {graph.nodes[0].name: kernel})
        outputs = bench.run_twice(executable, [case.feeds()[name] for name in graph.inputs])
        assert not (wrong := passed(case, outputs)), f"{case.name}: {wrong}"
        check_awkward_inputs(bench, case, graph, kernel)
        for name in graph.inputs:
            check_input_that_dies(bench, case, graph, kernel, name)
        if len(case.expected) == 1 and case.expected[0].dtype in (np.float32, np.float64):
            check_post_ops(bench, case, graph, kernel)


def check_awkward_inputs(bench, case, graph, kernel):
    """Inputs are only read, and may be awkward."""
    feeds = [awkward(case.feeds()[name]) for name in graph.inputs]
    before = [a.copy() for a in feeds]
    request = bench.executable(graph, {graph.nodes[0].name: kernel}).create_request()
    assert not (wrong := passed(case, request.run(feeds))), f"{case.name}, awkward inputs: {wrong}"
    for array, copy in zip(feeds, before, strict=True):
        np.testing.assert_array_equal(array, copy)


class Copy(Operator):
    """A value of its own, with the content of the input."""

    domain = "test"

    def reference(self, X):
        return X.copy()


def check_input_that_dies(bench, case, graph, kernel, name):
    """The input dies at the node, so that its memory may be taken over; the others live on."""
    (node,) = graph.nodes
    copied = type(node)("copy", Copy(), (name,), ("copied",))
    inputs = tuple("copied" if n == name else n for n in node.inputs)
    pair = (copied, dataclasses.replace(node, inputs=inputs))
    executable = bench.executable(graph.replace(nodes=pair), {node.name: kernel})
    outputs = bench.run_twice(executable, [case.feeds()[n] for n in graph.inputs])
    assert not (wrong := passed(case, outputs)), f"{case.name}, {name} dies: {wrong}"


def awkward(array):
    """The same values read-only, with gaps between the elements and, from two axes on, the first axis backwards."""
    if array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    if array.ndim > 1:
        array = np.repeat(array[::-1], 2, axis=-1)[::-1, ..., ::2]
    array.flags.writeable = False
    return array


def check_post_ops(bench, case, plain, kernel):
    """A chain of three against the same steps in float64 on the expected result without a chain."""
    rng = np.random.default_rng(11)
    operand = rng.standard_normal(case.expected[0].shape[-1:]).astype(case.expected[0].dtype)
    graph = bench.with_constant(plain, "operand", operand)
    chain = (Eltwise("linear", 0.5, -0.25), Binary("mul", "operand"), Eltwise("tanh"))
    node = dataclasses.replace(plain.nodes[0], post_ops=chain)
    executable = bench.executable(graph.replace(nodes=(node,)), {node.name: kernel})
    (got,) = bench.run_twice(executable, [case.feeds()[name] for name in graph.inputs])
    with np.errstate(all="ignore"):
        want = np.tanh((0.5 * case.expected[0].astype(np.float64) - 0.25) * operand)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{case.name} with post-ops")


def test_post_ops_are_checked_behind_most_kernels(bench):
    """Few kernels give something else than one floating-point tensor."""
    stems = [stem for stem in bench.stems if stem not in bench.internal]
    with_floats = [s for s in stems if any(len(c.expected) == 1 and c.expected[0].dtype.kind == "f" for c in bench.cases(s))]
    assert len(with_floats) > 0.6 * len(stems)
