"""Host kernels of operators on NUMPY: order, refusals, constants, memory taken over, state of a request, errors."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Reason, Refusal
from dovetail.errors import CompileError, DovetailError, InferError
from dovetail.graph import GraphBuilder
from dovetail.op import ANY, FLOATS, NHWC, DType, HostConfig, HostKernel, KernelRefused, Operator, PortConfig
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu

X = np.arange(-8, 4, dtype=np.float32).reshape(3, 4)


def compiled(
    core: dovetail.Core, op: Operator, *arrays: np.ndarray[Any, Any] | None, constants: Sequence[int] = (), **options: Any
):
    """A model of one node; its inputs are x0, x1, ..."""
    g = GraphBuilder()
    names = []
    for index, array in enumerate(arrays):
        if array is None:
            names.append("")
        elif index in constants:
            names.append(g.constant(array))
        else:
            names.append(g.input(f"x{index}", array.dtype.name, array.shape))
    return core.compile_model(g.model([g.node(op, *names, outputs=["y"])]), "NUMPY")


class Fast(HostKernel):
    """Half of everything, in float32 and only up to four rows."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig((PortConfig(DType.FLOAT32),), (PortConfig(DType.FLOAT32),))]

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        if op.slow:
            raise KernelRefused("asked to be slow")
        return config

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        np.multiply(inputs[0], np.float32(0.5), out=outputs[0])


class General(HostKernel):
    """The same for every float; the sign of zero tells the kernels apart."""

    name = "any_float"

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig.uniform(inputs, outputs)]

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        outputs[0][...] = -np.abs(inputs[0])


class Half(Operator):
    """Each kernel computes something else, so that a test sees which one ran."""

    domain = "test.host"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (Fast(), General())
    slow: bool = False

    def reference(self, X: Any) -> Any:
        return X * 100


def test_the_first_kernel_that_takes_the_node_runs_it(core: dovetail.Core) -> None:
    model = compiled(core, Half(), X)
    np.testing.assert_array_equal(model({"x0": X})[0], X / 2)
    (node,) = model.report().nodes
    assert (node.kernel, node.refusals) == ("fast", ())
    assert node.provider != "dovetail-cpu-numpy"


def test_a_refusal_leads_to_the_next_kernel_and_is_reported(core: dovetail.Core) -> None:
    model = compiled(core, Half(slow=True), X)
    np.testing.assert_array_equal(model({"x0": X})[0], -np.abs(X))
    (node,) = model.report().nodes
    assert node.kernel == "any_float"
    assert node.refusals == (("fast", Refusal(Reason.CONFIGURATION, "configuration 0: asked to be slow")),)
    wide = compiled(core, Half(), X.astype(np.float64))
    assert wide.report().nodes[0].refusals[0][1].detail == "configuration 0: input 0 is float64; accepted: float32"


class Nobody(Half):
    """All kernels refuse: the reference runs."""

    kernels = (Fast(),)


def test_the_reference_comes_last(core: dovetail.Core) -> None:
    model = compiled(core, Nobody(slow=True), X)
    np.testing.assert_array_equal(model({"x0": X})[0], X * 100)
    assert model.report().nodes[0].kernel == "ref"
    assert model.report().nodes[0].refusals[0][0] == "fast"


def test_post_ops_are_applied_to_the_result(core: dovetail.Core) -> None:
    for fusion in (True, False):
        g = GraphBuilder()
        x = g.input("x", "float32", X.shape)
        model = core.compile_model(g.model([g.node(Relu(), g.node(Half(), x))]), "NUMPY", {"FUSION": fusion})
        assert [n.post_ops for n in model.report().nodes] == ([("relu",)] if fusion else [(), ()])
        assert model.report().nodes[0].kernel == "fast"
        np.testing.assert_array_equal(model({"x": X})[0], np.maximum(X / 2, 0))


# --- memory taken over -----------------------------------------------------------------------------------------------


class Shift(HostKernel):
    """Adds 1 in the memory of the input; reads nothing else, so it is wrong where that is not shared."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [dataclasses.replace(HostConfig.uniform(inputs, outputs, in_place=0), dynamic_batch=True)]

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        return HostConfig.uniform(*op.types_of(config)) if op.lower else config

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        op.seen.append((inputs[0] is outputs[0], inputs[0].flags.writeable))
        if op.lower:
            outputs[0][...] = inputs[0]
        outputs[0] += 1


class AddOne(Operator):
    """x + 1."""

    domain = "test.host"
    inputs = ("X",)
    outputs = ("Y",)
    kernels = (Shift(),)
    lower: bool = False

    @property
    def seen(self) -> list[tuple[bool, bool]]:
        return self.__dict__.setdefault("_seen", [])

    def types_of(self, config: HostConfig) -> Any:
        return [dovetail.graph.TensorType(config.inputs[0].dtype, ())], [dovetail.graph.TensorType(DType.FLOAT32, ())]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_in_place_shares_memory_and_harms_nothing(core: dovetail.Core, kept: bool, lower: bool) -> None:
    """-x + 1, and -x itself when it is still needed; and the graph's input, which is needed by the caller."""
    g = GraphBuilder()
    x = g.input("x", "float32", X.shape)
    op = AddOne(lower=lower)
    first = g.node(AddOne(lower=lower), x)
    negated = g.node(Neg(), first)
    shifted = g.node(op, negated)
    # Read again afterwards by a node, not only as an output.
    outputs = [shifted, g.node(Neg(), negated), first] if kept else [shifted]
    model = core.compile_model(g.model(outputs), "NUMPY", {"FUSION": False})
    given = X.copy()
    for _ in range(2):
        results = model({"x": given})
        expected = [-X, X + 1, X + 1] if kept else [-X]
        for got, want in zip([results[i] for i in range(len(outputs))], expected, strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(given, X)
    assert op.seen == [(not lower, not lower)] * 2


@pytest.mark.parametrize("kept", [False, True])
def test_memory_is_shared_in_the_plan(bench: Any, kept: bool) -> None:
    """One block for both where the input dies; a block each where it lives on, or the kernel does not want it."""
    for lower in (False, True):
        g = GraphBuilder()
        negated = g.node(Neg(), g.input("x", "float32", X.shape))
        shifted = g.node(AddOne(lower=lower), negated)
        storage = bench.executable(g.graph([shifted, negated] if kept else [shifted])).memory.storage
        assert (storage[shifted] == storage[negated]) == (not kept and not lower)


# --- constants, optional inputs, several outputs ---------------------------------------------------------------------


class Repacked(HostKernel):
    """X @ W with the transposed W made once for each request."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        f32 = PortConfig(DType.FLOAT32)
        return [HostConfig((f32, dataclasses.replace(f32, constant=True)), (f32,))]

    def bind(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> Any:
        op.bound.append(inputs[1].copy())
        return partial(np.matmul, inputs[0], np.asfortranarray(inputs[1]), outputs[0])

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        raise AssertionError("bind gives something else")


class Product(Operator):
    """X @ W."""

    domain = "test.host"
    inputs = ("X", "W")
    outputs = ("Y",)
    kernels = (Repacked(),)

    @property
    def bound(self) -> list[Any]:
        return self.__dict__.setdefault("_bound", [])

    def infer(self, X: Any, W: Any) -> Any:
        return X.with_shape((X.dims[0], W.dims[1]))

    def reference(self, X: Any, W: Any) -> Any:
        return X @ W


def test_a_constant_port(core: dovetail.Core) -> None:
    w = np.random.default_rng(5).standard_normal((4, 2)).astype(np.float32)
    op = Product()
    model = compiled(core, op, X, w, constants=[1])
    assert model.report().nodes[0].kernel == "repacked"
    wide = X.astype(np.float64) @ w.astype(np.float64)
    requests = [model.create_infer_request() for _ in range(2)]
    for request in requests:
        for _ in range(2):
            np.testing.assert_allclose(request.infer({"x0": X})[0], wide, rtol=1e-5)
    assert len(op.bound) == 2
    np.testing.assert_array_equal(op.bound[0], w)
    variable = compiled(core, Product(), X, w)
    assert variable.report().nodes[0].kernel == "ref"
    assert "input 1 is not a constant" in str(variable.report().nodes[0].refusals[0][1])
    np.testing.assert_allclose(variable({"x0": X, "x1": w})[0], wide, rtol=1e-5)


class MinMax(HostKernel):
    """Two outputs, either of which may be left out, and an optional input."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig.uniform(inputs, outputs)]

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        x, bias = inputs
        for ufunc, out in zip((np.minimum, np.maximum), outputs, strict=True):
            if out is not None:
                ufunc.reduce(x if bias is None else x + bias, axis=0, out=out)


class Extremes(Operator):
    """Minimum and maximum over the rows of X + B."""

    domain = "test.host"
    inputs = ("X", "B?")
    outputs = ("Low", "High?")
    kernels = (MinMax(),)

    def infer(self, X: Any, B: Any = None) -> Any:
        return X.with_shape(X.dims[1:]), X.with_shape(X.dims[1:])


@pytest.mark.parametrize("outputs", [("low",), ("low", "high"), ("", "high")])
@pytest.mark.parametrize("bias", [False, True])
def test_ports_left_out(core: dovetail.Core, outputs: tuple[str, ...], bias: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", X.shape)
    g.node(Extremes(), x, *([g.constant(np.float32([1, 2, 3, 4]))] if bias else []), outputs=outputs)
    results = core.compile_model(g.model([n for n in outputs if n]), "NUMPY")({"x": X})
    wide = X.astype(np.float64) + (np.arange(1, 5) if bias else 0)
    for name, want in (("low", wide.min(0)), ("high", wide.max(0))):
        if name in outputs:
            np.testing.assert_array_equal(results[name], want)


def test_batch_0(core: dovetail.Core) -> None:
    empty = np.zeros((0, 4), np.float32)
    assert compiled(core, Half(), empty)({"x0": empty})[0].shape == (0, 4)


# --- errors ----------------------------------------------------------------------------------------------------------


class Careless(Fast):
    """Writes to its input."""

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        inputs[0][...] = 0


class Liar(Fast):
    """Prepares a configuration that it did not offer."""

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        return HostConfig.uniform([], [])


class Broken(Half):
    """Kernels that break the contract."""

    kernels = (Careless(),)


class Lying(Half):
    """Kernels that break the contract."""

    kernels = (Liar(),)


def test_errors_name_the_node(core: dovetail.Core) -> None:
    with pytest.raises(InferError, match=r"node 'broken' \(test.host::Broken\): ValueError: .*read-only"):
        compiled(core, Broken(), X)({"x0": X})
    with pytest.raises(dovetail.DovetailError, match=r"node 'lying' .*host kernel 'liar': prepare"):
        compiled(core, Lying(), X)


class NhwcOnly(Fast):
    """Takes NHWC and nothing else."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig.uniform(inputs, outputs, NHWC)]


class Picky(Half):
    """For images."""

    kernels = (NhwcOnly(),)


def test_a_layout_that_does_not_fit_is_refused(core: dovetail.Core) -> None:
    model = compiled(core, Picky(), X)
    assert model.report().nodes[0].kernel == "ref"
    assert "BYXF has no order of 2 dimensions" in str(model.report().nodes[0].refusals[0][1])


def test_a_graph_without_the_layout_pass_is_refused(bench: Any) -> None:
    with pytest.raises(CompileError, match="'nhwc_only' takes it in other memory layouts"):
        bench.executable(bench.single(Picky(), [np.zeros((1, 2, 3, 4), np.float32)])[0])


class Accumulator(HostKernel):
    """A work array for each request; without it, threads would disturb each other."""

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig.uniform(inputs, outputs, ANY)]

    def bind(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> Any:
        work = np.empty_like(outputs[0])

        def run() -> None:
            work[...] = 0
            for _ in range(20):
                work[...] += inputs[0]
            outputs[0][...] = work

        return run

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        raise AssertionError("bind gives something else")


class Twenty(Half):
    """20 x."""

    kernels = (Accumulator(),)


def test_requests_have_state_of_their_own(core: dovetail.Core) -> None:
    model = compiled(core, Twenty(), X)
    wrong = []

    def work(scale: int) -> None:
        request = model.create_infer_request()
        results = (request.infer({"x0": X * scale})[0] for _ in range(50))
        wrong.extend(scale for result in results if not np.array_equal(result, X * scale * 20))

    threads = [threading.Thread(target=work, args=(s,)) for s in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("execute", "message"),
    [
        (lambda *given: given[-1].__setitem__(0, given[-2][0] * 2), r"execute\(\) replaced an output instead of writing it"),
        (lambda *given: given[-1].clear(), r"execute\(\) replaced an output instead of writing it"),
    ],
)
def test_a_kernel_that_replaces_an_output_is_an_error_and_not_a_wrong_result(
    core: dovetail.Core, execute: Callable[..., None], message: str
) -> None:
    class Replacing(HostKernel):
        def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
            return [HostConfig.uniform(inputs, outputs)]

        def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
            execute(op, config, inputs, outputs)

    class Doubled(Operator):
        domain = "test"
        kernels = (Replacing(),)

        def reference(self, X: Any) -> Any:
            return X * 2

    with compiled(core, Doubled(), X) as model:
        for _ in range(3):
            with pytest.raises(InferError, match=rf"Doubled\): host kernel 'replacing': {message}\n  write into the array"):
                model([X])


@pytest.mark.parametrize("given", [None, 7, [None], HostConfig((), ())])
def test_configurations_that_are_not_a_list_are_an_error_that_names_the_kernel(core: dovetail.Core, given: Any) -> None:
    class Odd(HostKernel):
        def configurations(self, op: Any, inputs: Any, outputs: Any) -> Any:
            return given

        def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
            raise AssertionError("it is not run")

    class Other(Operator):
        domain = "test"
        kernels = (Odd(),)

        def reference(self, X: Any) -> Any:
            return X

    with pytest.raises(DovetailError, match=r"host kernel 'odd': configurations\(\) gave .*; accepted: a list of HostConfig"):
        compiled(core, Other(), X).finish_compiling()
