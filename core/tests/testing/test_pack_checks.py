"""The checks of op packs: a good operator passes, and each kind of mistake is found."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import PluginIncompatible, UnknownOperator
from dovetail.op import FLOATS, Graph, GraphBuilder, OpenCLKernel, Operator, TensorType
from dovetail.testing import Case, Outcome
from dovetail.testing.check import ConformanceFailure
from dovetail.testing.packs import OpPackChecks, _kernel_dtypes, probe

SOURCE = "__kernel void twice(__global const float *src, __global float *dst, float factor) {}"


class Twice(Operator):
    """y = factor x."""

    domain = "com.acme"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    factor: float = 2.0

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        return (X * self.factor).astype(X.dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3)).astype(np.float32)
        yield Case("float32", cls(), (x,), (x + x,))


class NeedsAxis(Twice):
    """Has an attribute without default."""

    axis: int


def results(cls: type[Operator], make_core: Callable[..., dovetail.Core], *groups: str) -> dict[str, Any]:
    """Name -> result, of the checks of a pack with this operator."""

    @dovetail.hookimpl
    def dovetail_register_ops(registry: Any, domain: str) -> None:
        registry.add(cls)

    def core() -> dovetail.Core:
        made = make_core()
        plugin = SimpleNamespace(dovetail_api="1.0", dovetail_register_ops=dovetail_register_ops)
        made.plugins.register(plugin, name="acme", kind="ops", key="com.acme")
        return made

    kit = OpPackChecks("com.acme", core)
    return {check.name: check.result() for check in kit.checks if not groups or check.group in groups}


@pytest.fixture
def make_core() -> Callable[..., dovetail.Core]:
    return make_toy_core


def make_toy_core() -> dovetail.Core:
    return dovetail.Core()


def failure(cls: type[Operator], name: str) -> str:
    """The mistakes that the check of this name finds."""
    result = results(cls, make_toy_core)[name]
    assert result.outcome is Outcome.FAILED
    return str(result.detail)


def test_a_good_operator_passes(make_core: Any) -> None:
    found = results(Twice, make_core)
    assert {r.outcome for r in found.values()} <= {Outcome.PASSED, Outcome.REFUSED}
    assert {"twice-definition", "twice-cases", "twice-float32"} <= set(found)
    assert found["twice-float32-NUMPY"].outcome is Outcome.PASSED


def test_a_domain_without_pack() -> None:
    with pytest.raises(UnknownOperator, match=r"com\.nobody"):
        _ = OpPackChecks("com.nobody").checks


def variant(**body: Any) -> type[Any]:
    """`Twice` with some of it written otherwise."""
    return type("Twice", (Twice,), {"__doc__": Twice.__doc__, "__module__": __name__, **body})


def test_no_cases() -> None:
    assert "has no cases" in failure(variant(cases=classmethod(lambda cls, rng: ())), "twice-cases")


def test_cases_of_one_name() -> None:
    def cases(cls: Any, rng: Any) -> Iterator[Case]:
        for _ in range(2):
            yield from Twice.cases.__func__(cls, rng)

    assert "several cases are called float32" in failure(variant(cases=classmethod(cases)), "twice-cases")


def test_the_content_of_an_input_as_that_of_an_output() -> None:
    found = failure(variant(infer=lambda self, X: X), "twice-float32")
    assert "infer() says of output 0 what its content is, and output 0 at (0, 0)" in found
    assert "return X.with_shape(X.shape)" in found


def test_no_docstring() -> None:
    assert "no docstring" in failure(variant(__doc__=None), "twice-definition")


def test_docstrings_that_python_leaves_out() -> None:
    """With -OO."""
    script = (
        "from dovetail.testing.packs import definition_checks\n"
        "from dovetail_ops_onnx.tanh import Tanh\n"
        "print(Tanh.__doc__, next(definition_checks(Tanh, [])).result())"
    )
    done = subprocess.run([sys.executable, "-OO", "-c", script], capture_output=True, text=True, check=True)
    assert "None Result(" in done.stdout
    assert "PASSED" in done.stdout


def test_a_port_without_type() -> None:
    assert "port 'Y' has no data type" in failure(variant(outputs=("Y",)), "twice-definition")


@pytest.mark.parametrize(("written", "meant"), [("refrence", "reference"), ("kernel", "kernels")])
def test_a_name_that_is_almost_one_of_the_contract(written: str, meant: str) -> None:
    assert f"the class has {written!r}: write {meant!r}" in failure(variant(**{written: ()}), "twice-definition")
    both = variant(**{written: (), meant: getattr(Twice, meant)})
    assert results(both, make_toy_core, "operators")["twice-definition"].outcome is Outcome.PASSED


def test_neither_reference_nor_composition() -> None:
    cls = variant(reference=Operator.reference)
    assert "runs nowhere" in failure(cls, "twice-definition")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"entry": "twise"}, "no kernel 'twise'"),
        ({"entry": "twice", "layouts": {"Z": "BYXF"}}, "layouts names"),
    ],
)
def test_kernel_sources(kernel: dict[str, Any], message: str) -> None:
    assert message in failure(variant(kernels=(OpenCLKernel(source=SOURCE, **kernel),)), "twice-kernel_sources")


def test_a_kernel_that_no_case_runs() -> None:
    core = dovetail.Core()
    if not any(info.type.lower() == OpenCLKernel.language for info in core.devices):
        pytest.skip("no installed device takes kernels in OpenCL C")
    source = SOURCE.replace("{}", "{ dst[get_global_id(0)] = factor * src[get_global_id(0)]; }")
    scalars = (("factor", "float"),)
    good = results(variant(kernels=(OpenCLKernel(source=source, entry={"float32": "twice"}, scalars=scalars),)), make_toy_core)
    more = {"float32": "twice", "float64": "twice"}
    bad = results(variant(kernels=(OpenCLKernel(source=source, entry=more, scalars=scalars),)), make_toy_core)
    names = [name for name in good if "-kernels-" in name]
    assert names
    for name in names:
        assert good[name].outcome is Outcome.PASSED
        assert "no case runs the kernel for float64" in bad[name].detail


def test_inference_that_disagrees() -> None:
    cls = variant(infer=lambda self, X: TensorType(X.dtype, (1,)))
    assert "infer() gives float32[1] for output 0, expected float32[2, 3]" in failure(cls, "twice-float32")


def test_a_wrong_reference() -> None:
    assert "reference(): output 0" in failure(variant(reference=lambda self, X: X * 3), "twice-float32")


def test_a_reference_with_more_outputs_than_ports() -> None:
    cls = variant(reference=lambda self, X: (X * 2, X))
    assert "reference() gives 2 outputs, the class has 1" in failure(cls, "twice-float32")


def test_a_reference_that_needs_contiguous_inputs() -> None:
    cls = variant(reference=lambda self, X: X + X if X.flags.c_contiguous else X)
    assert "with strided inputs" in failure(cls, "twice-float32")


def test_a_reference_that_writes_its_input() -> None:
    def reference(self: Any, X: NDArray[Any]) -> NDArray[Any]:
        if X.flags.writeable:
            X *= 2
            return X.copy()
        return X * 2

    assert "was written" in failure(variant(reference=reference), "twice-float32")


def test_a_wrong_composition() -> None:
    from dovetail_ops_onnx.neg import Neg

    def compose(self: Any, g: GraphBuilder, X: str) -> str:
        name: str = g.node(Neg(), X)
        return name

    assert "compose(): output 0" in failure(variant(compose=compose), "twice-float32")


def test_made_up_inputs() -> None:
    assert probe(Twice)
    assert not probe(NeedsAxis)
    with pytest.raises(ConformanceFailure, match=r"reference\(\) gives float32\[3, 2\], infer\(\) says float32\[2, 3\]"):
        probe(variant(reference=lambda self, X: X.T))


class Positive(Twice):
    """The elements above zero, in order: a data-dependent shape, as docs/how-to/dynamic_shapes.md has it."""

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape((None,))

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        return X[X > 0]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = np.array([[1, -2, 3], [-4, 5, 6]], np.float32)
        yield Case("float32", cls(), (x,), (np.array([1, 3, 5, 6], np.float32),))


class WrongRank(Positive):
    """Infers a matrix."""

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape((None, None))


def test_shapes_from_data_are_compared_where_they_are_known(make_core: Any) -> None:
    found = results(Positive, make_core, "operators", "cases")
    assert found["positive-float32"].outcome is Outcome.PASSED, found["positive-float32"].detail
    assert probe(Positive)
    assert "infer() gives float32[?, ?]" in failure(WrongRank, "wrong_rank-float32")


class Repeat(Twice):
    """Runs the body twice: a class with `control` and no reference."""

    reference = Operator.reference
    body: Graph

    def control(self, run: Any, X: Any) -> Any:
        return run(self.body, run(self.body, [X]))[0]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        g = GraphBuilder()
        body = g.graph([g.node(Twice(), g.input("x", "float32", [3]))])
        yield Case("twice", cls(body=body), (np.float32([1, 2, 3]),), (np.float32([4, 8, 12]),))


def test_cases_of_control_flow_run_on_devices(make_core: Any) -> None:
    found = results(Repeat, make_core)
    assert found["repeat-twice"].outcome is Outcome.PASSED
    assert found["repeat-twice-NUMPY"].outcome is Outcome.PASSED


def test_what_keeps_a_pack_from_loading_is_the_error() -> None:
    def core() -> dovetail.Core:
        made = dovetail.Core()
        made.plugins.register(SimpleNamespace(dovetail_api="0.1"), name="acme", kind="ops", key="com.acme")
        return made

    with pytest.raises(PluginIncompatible, match=r"plugin API 0\.1"):
        _ = OpPackChecks("com.acme", core).checks


def test_one_entry_for_all_types_needs_a_case_that_runs_it() -> None:
    kernels = (OpenCLKernel(source=SOURCE, entry={"float16": "twice"}), OpenCLKernel(source=SOURCE, entry="twice"))
    assert _kernel_dtypes(variant(kernels=kernels)) == [("float16",), ("bfloat16", "float32", "float64")]
    assert _kernel_dtypes(variant(kernels=kernels[:1])) == [("float16",)]
    assert _kernel_dtypes(variant(kernels=())) == []
