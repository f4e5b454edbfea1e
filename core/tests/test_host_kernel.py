"""Host kernels: which configurations fit a node, what `prepare` may do with them, and what is said of the others."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import LayerConfig, Reason, TypedNode
from dovetail.devices.hosting import prepare_host_kernel
from dovetail.errors import OperatorError
from dovetail.graph import GraphBuilder, TensorType
from dovetail.op import ANY, FYXB, NHWC, PLAIN, DType, HostConfig, HostKernel, KernelRefused, Layout, Operator, PortConfig
from dovetail.passes.constant_folding import fold_constants

F32, F64 = DType.FLOAT32, DType.FLOAT64
DIMS = (2, 3, 4, 5)


class Blend(Operator):
    """Two inputs, one of them optional, and two outputs."""

    domain = "test.host"
    inputs = ("X", "A?")
    outputs = ("Y?", "Z?")

    def infer(self, X: TensorType, A: TensorType | None = None) -> tuple[TensorType, TensorType]:
        return X.with_shape(X.shape), X.with_shape(X.shape)


class Declared(HostKernel):
    """Offers what the test says, and prepares as it says."""

    def __init__(self, configs: Sequence[HostConfig], prepare: Callable[[HostConfig], HostConfig] = lambda c: c) -> None:
        self.seen: list[Any] = []
        self._configs, self._prepare = configs, prepare

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        self.seen.append((op, inputs, outputs))
        return self._configs

    def prepare(self, op: Any, config: HostConfig) -> HostConfig:
        return self._prepare(config)

    def execute(self, op: Any, config: HostConfig, inputs: Any, outputs: Any) -> None:
        raise AssertionError("nothing runs here")


def config(
    x: PortConfig | None = None, y: PortConfig | None = None, a: PortConfig | None = None, z: PortConfig | None = None
) -> HostConfig:
    return HostConfig((x or PortConfig(F32), a), (y or PortConfig(F32), z))


def node(
    dims: tuple[int, ...] = DIMS, second: Any = None, outputs: Sequence[str] = ("y", ""), layout: Layout = PLAIN
) -> TypedNode:
    g = GraphBuilder()
    x = g.input("x", "float32", dims)
    name = g.constant(second, name="a") if isinstance(second, np.ndarray) else ""
    g.node(Blend(), x, name, outputs=outputs, name="blend")
    graph = fold_constants(g.graph([n for n in outputs if n]))
    graph = graph.replace(types={n: t.with_layout(layout) for n, t in graph.types.items()})
    return TypedNode.of(graph.nodes[0], graph)


def taken(kernel: HostKernel, typed: TypedNode | None = None) -> tuple[HostConfig, ...]:
    return prepare_host_kernel(kernel, typed or node())[0]


def reason(kernel: HostKernel, typed: TypedNode | None = None) -> str:
    configs, refusal = prepare_host_kernel(kernel, typed or node())
    assert configs == ()
    assert refusal is not None
    assert refusal.reason is Reason.CONFIGURATION
    return refusal.detail


def test_all_that_fit_are_taken_in_order() -> None:
    offered = [config(PortConfig(F32, NHWC), PortConfig(F32, NHWC)), config()]
    assert prepare_host_kernel(Declared(offered), node()) == (tuple(offered), None)


def test_ports_are_padded_and_what_is_left_out_is_none() -> None:
    kernel = Declared([HostConfig((PortConfig(F32),), (PortConfig(F32),))])
    assert len(taken(kernel, node(outputs=("y",)))) == 1
    _, inputs, outputs = kernel.seen[0]
    assert [None if t is None else t.dims for t in inputs] == [DIMS, None]
    assert [None if t is None else t.dims for t in outputs] == [DIMS, None]
    second = Declared([HostConfig((PortConfig(F32),), (None, PortConfig(F32)))])
    assert len(taken(second, node(outputs=("", "z")))) == 1


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (config(PortConfig(F64)), "configuration 0: input 0 is float32; accepted: float64"),
        (config(y=PortConfig(F64)), "configuration 0: output 0 is float32; accepted: float64"),
        (config(PortConfig(F32, constant=True)), "configuration 0: input 0 is not a constant"),
        (config(PortConfig(F32, Layout("own"))), "configuration 0: input 0: layout own has no order of 4 dimensions"),
        (
            config(PortConfig(F32, Layout.of("nChw16c"))),
            "configuration 0: input 0: layout nChw16c, and the device keeps no float32 in blocks of 16",
        ),
        (config(a=PortConfig(F32)), "configuration 0: input 1 is left out"),
        (config(z=PortConfig(F32)), "configuration 0: output 1 is left out"),
        (HostConfig((), (PortConfig(F32),)), "configuration 0: input 0 is given, and the configuration leaves it out"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(offered: HostConfig, said: str) -> None:
    assert reason(Declared([offered])) == said
    assert taken(Declared([offered, config()])) == (config(),)


def test_devices_with_blocked_layouts_take_them() -> None:
    blocked = config(PortConfig(F32, Layout.of("nChw16c")), PortConfig(F32, Layout.of("nChw16c")))
    assert prepare_host_kernel(Declared([blocked]), node(), blocked=(8, 16)) == ((blocked,), None)
    assert prepare_host_kernel(Declared([blocked, config()]), node(), blocked=(8,))[0] == (config(),)
    found, refusal = prepare_host_kernel(Declared([blocked]), node((2, 3, 4)), blocked=(8, 16))
    assert not found
    assert "nChw16c has 4 dimensions, not 3" in str(refusal)


def test_layouts_must_fit_the_rank() -> None:
    flat = config(PortConfig(F32, FYXB), PortConfig(F32, FYXB))
    assert "FYXB has no order of 3" in reason(Declared([flat]), node((2, 3, 4)))
    assert taken(Declared([config(PortConfig(F32, ANY), PortConfig(F32, ANY))]), node((2,)))


def test_a_constant_port_takes_a_constant() -> None:
    offered = config(a=PortConfig(F32, constant=True))
    kernel = Declared([offered])
    assert taken(kernel, node(second=np.ones(3, np.float32))) == (offered,)
    np.testing.assert_array_equal(kernel.seen[0][1][1].value, np.ones(3))


def test_no_configuration_is_a_refusal() -> None:
    assert reason(Declared([])) == "it has no configuration"


def test_prepare_may_refuse() -> None:
    def refuse(given: HostConfig) -> HostConfig:
        if given.inputs[0] == PortConfig(F32, NHWC):
            raise KernelRefused("not on Mondays")
        return given

    first = config(PortConfig(F32, NHWC), PortConfig(F32, NHWC))
    configs, refusal = prepare_host_kernel(Declared([first, config()], refuse), node())
    assert configs == (config(),)
    assert str(refusal) == "no configuration of the operator's kernel: configuration 0: not on Mondays"


def test_prepare_may_downgrade() -> None:
    offered = dataclasses.replace(config(y=PortConfig(F32, in_place=0)), dynamic_batch=True)
    for lower in (config(), dataclasses.replace(config(), dynamic_batch=True), config(y=PortConfig(F32, in_place=0))):
        assert taken(Declared([offered], lambda c, lower=lower: lower)) == (lower,)


@pytest.mark.parametrize(
    "changed",
    [
        config(PortConfig(F32, NHWC)),
        config(y=PortConfig(F32, in_place=0)),
        dataclasses.replace(config(), dynamic_batch=True),
        HostConfig((PortConfig(F32),), (PortConfig(F32),)),
        None,
    ],
)
def test_any_other_change_is_an_error(changed: Any) -> None:
    with pytest.raises(OperatorError, match=r"node 'blend' \(test.host::Blend\).*host kernel 'declared': prepare"):
        taken(Declared([config()], lambda c: changed))


def test_in_place_needs_one_type_and_layout() -> None:
    assert len(taken(Declared([config(y=PortConfig(F32, in_place=0))]))) == 1
    smaller = np.ones(DIMS[1:], np.float32)
    other = config(y=PortConfig(F32, in_place=1), a=PortConfig(F32))
    assert "which does not fit the memory of input 1, float32[3, 4, 5]" in reason(Declared([other]), node(second=smaller))
    for wrong in (config(y=PortConfig(F32, in_place=5)), config(PortConfig(F32, NHWC), PortConfig(F32, in_place=0))):
        with pytest.raises(OperatorError, match="name an input that is present"):
            taken(Declared([wrong]))
    twice = config(y=PortConfig(F32, in_place=0), z=PortConfig(F32, in_place=0))
    with pytest.raises(OperatorError, match="two outputs take the memory of one input"):
        taken(Declared([twice]), node(outputs=("y", "z")))


def test_too_many_ports_are_an_error() -> None:
    with pytest.raises(OperatorError, match="a configuration has 3 inputs, not 2"):
        taken(Declared([HostConfig((PortConfig(F32), None, PortConfig(F32)), (PortConfig(F32),))]))


def test_an_exception_of_the_author_names_the_node() -> None:
    def broken(given: HostConfig) -> HostConfig:
        raise KeyError("oops")

    with pytest.raises(OperatorError, match=r"node 'blend'.*KeyError"):
        taken(Declared([config()], broken))


def test_the_answer_does_not_depend_on_layouts() -> None:
    kernel = Declared([config(PortConfig(F32, NHWC), PortConfig(F32, NHWC)), config()])
    assert prepare_host_kernel(kernel, node()) == prepare_host_kernel(kernel, node(layout=NHWC))
    assert kernel.seen[0][1:] == kernel.seen[1][1:]


def test_uniform() -> None:
    typed = node(second=np.ones(3, np.float64))
    found = HostConfig.uniform(typed.inputs, (*typed.outputs, None), NHWC, in_place=0)
    assert found == HostConfig((PortConfig(F32, NHWC), PortConfig(F64, NHWC)), (PortConfig(F32, NHWC, in_place=0), None))


def test_names() -> None:
    assert Declared.name == "declared"
    with pytest.raises(OperatorError, match="the name 'ref' cannot be used"):
        type("Ref", (Declared,), {})
    assert Declared([]).origin.endswith("test_host_kernel.Declared")


def test_elementwise_and_fits() -> None:
    typed = node(second=np.float32(2).reshape(()))
    assert LayerConfig.elementwise(typed) == LayerConfig((ANY, PLAIN), (ANY,))
    assert LayerConfig.elementwise(node(second=np.ones(5, np.float32))) == LayerConfig.uniform(typed, PLAIN)
    nhwc = node(layout=NHWC)
    assert LayerConfig.elementwise(nhwc).fits(nhwc)
    assert LayerConfig((NHWC, PLAIN), (NHWC,)).fits(nhwc)
    assert not LayerConfig((NHWC, PLAIN), (PLAIN,)).fits(nhwc)
    mixed = dataclasses.replace(nhwc, outputs=(nhwc.outputs[0].with_layout(PLAIN),))
    assert not LayerConfig.elementwise(nhwc).fits(mixed)
    assert LayerConfig((NHWC, PLAIN), (PLAIN,)).fits(mixed)
