"""The checks of a device, driven by what it claims: what it accepts must be right, what it does not needs a reason."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.refusals import Reason, Refusal
from dovetail.errors import UnsupportedNode
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Node
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType
from dovetail.locks import cached_property
from dovetail.operators.operator import Operator
from dovetail.runtime import CompiledModel, Core
from dovetail.testing import request_checks
from dovetail.testing._arrays import TOLERANCE, VARIANTS, Guarded, awkward, close, equal, read_only, same, sample
from dovetail.testing._operators import standard
from dovetail.testing.case import Case, passed
from dovetail.testing.case_files import random_kinds, standard_cases
from dovetail.testing.check import PASSED, Check, Outcome, Verdict, require
from dovetail.testing.kit import Kit
from dovetail.testing.random_graphs import Kind, evaluate, random_feeds, random_model

__all__ = ["RANDOM_GRAPHS", "DeviceChecks", "check_refusal"]

RANDOM_GRAPHS = 16

Array = NDArray[Any]
Feeds = Mapping[str, Array]


class DeviceChecks(Kit):
    """The checks of one device, by its name or type. The session is opened by the first check that runs.

    `make_core` gives the session, `seed` the random inputs.
    """

    def __init__(self, device: str, make_core: Callable[[], Core] = Core, seed: int = 7) -> None:
        self.device = device
        super().__init__(make_core, seed)

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order. Asks the device nothing."""
        return (*self._operators(), *self._data_types(), *self._shapes(), *self._memory(), *self._requests(), *self._graphs())

    def open(self) -> None:
        """Open the session and the device. Raises what keeps it from opening."""
        g = GraphBuilder()
        self.core.query_model(g.model([g.node(standard("Neg")(), g.input("x", DType.FLOAT32, (3,)))]), self.device)

    # --- what is compiled ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def compiled(self, model: Model, core: Core | None = None, **properties: Any) -> Iterator[CompiledModel]:
        """The model compiled for the device alone. Raises `UnsupportedNode` for what it does not claim."""
        with (core or self.core).compile_model(model, self.device, {"FALLBACK": False, **properties}) as compiled:
            self._check_report(compiled)
            yield compiled

    def _check_report(self, compiled: CompiledModel) -> None:
        for node in compiled.report().nodes:
            require(node.kernel, f"the report of node {node.name!r} ({node.op}) names no kernel")
            require(node.device in compiled.devices, f"node {node.name!r} runs on {node.device}, not on {compiled.device}")

    def refused(self, model: Model, error: UnsupportedNode) -> Verdict:
        """Check a refusal: `query_model` must say the same, with a reason of the closed vocabulary and a detail."""
        answers = self.core.query_model(model, self.device)
        refusals = [answer for answer in answers.values() if isinstance(answer, Refusal)]
        require(refusals, f"compile_model refuses what query_model accepts: {error.message}")
        for refusal in refusals:
            check_refusal(refusal)
        return Verdict(Outcome.REFUSED, str(refusals[0]))

    def claimed(self, model: Model, test: Callable[[CompiledModel], Verdict | None]) -> Verdict:
        """`test` with the compiled model, or the refusal."""
        try:
            with self.compiled(model) as compiled:
                return test(compiled) or PASSED
        except UnsupportedNode as error:
            return self.refused(model, error)

    def example_check(self, group: str, name: str, test: Callable[[CompiledModel, Feeds, Feeds], Verdict | None]) -> Check:
        """A check on a graph of operators that the device claims, with two sets of inputs."""

        def run() -> Verdict:
            model, *feeds = self._example
            return self.claimed(model, lambda compiled: test(compiled, *feeds))

        return Check(group, name, run)

    # --- operators -------------------------------------------------------------------------------------------------

    def _operators(self) -> Iterator[Check]:
        for stem, case in standard_cases(self._seed):
            yield self.case_check(f"{stem}-{case.name}", case)

    def case_check(self, name: str, case: Case) -> Check:
        """A case as a check."""
        return Check("operators", name, partial(self.case, case), case.op.key, case.dtype)

    def case(self, case: Case) -> Verdict:
        """A case twice in one request, with plain and with awkward arrays, and once more between guards."""
        model = case.model()

        def run(compiled: CompiledModel) -> Verdict:
            self._check_query(case, model)
            _run_twice(case, compiled)
            if not compiled.report().nodes:
                return Verdict(Outcome.FOLDED)
            self._run_guarded(case, model)
            return PASSED

        return self.claimed(model, run)

    def _check_query(self, case: Case, model: Model) -> None:
        if not case.op.has_composition():
            refusals = [a for a in self.core.query_model(model, self.device).values() if isinstance(a, Refusal)]
            require(not refusals, f"query_model refuses what compile_model accepts: {', '.join(map(str, refusals))}")

    @cached_property
    def _guard(self) -> Operator | None:
        """An operator that the device claims and whose results are exact; it makes the values that nobody may write."""
        exact: tuple[Operator, ...] = (standard("Neg")(), standard("Abs")(), standard("Relu")())
        for op in exact:
            g = GraphBuilder()
            model = g.model([g.node(op, g.input("x", DType.FLOAT32, (3,)))])
            with contextlib.suppress(UnsupportedNode), self.compiled(model):
                return op
        return None

    def _run_guarded(self, case: Case, model: Model) -> None:
        if self._guard is None:
            return
        op, values = self._guard, [np.arange(1, n + 1, dtype=np.float32) for n in (1, 67, 16)]
        want = [op.reference(v) for v in values]
        results = self._results(_guarded(model, op, values), {**case.feeds(), **{f"guard{i}": v for i, v in enumerate(values)}})
        count = len(case.expected)
        for got, expected in zip(results[count:], want, strict=True):
            require(same(got, expected), "the node writes outside its outputs: another value of the graph has changed")
        wrong = passed(case, results[:count])
        require(not wrong, f"among other values: {wrong}")

    def _results(self, model: Model, feeds: Feeds, **properties: Any) -> list[Array]:
        with self.compiled(model, **properties) as compiled:
            results = compiled(feeds)
            return [results[i] for i in range(len(results))]

    # --- data types ------------------------------------------------------------------------------------------------

    def _data_types(self) -> Iterator[Check]:
        for dtype in DType:
            if dtype in standard("Transpose").types["T"]:
                for op in (standard("Transpose")(perm=(2, 0, 1)), standard("Reshape")()):
                    run = partial(self._round_trip, dtype, op)
                    yield Check("data_types", f"bits-{op.stem}-{dtype.value}", run, op.key, dtype.value)

    def _round_trip(self, dtype: DType, op: Operator) -> Verdict:
        if dtype not in _plain_types() and find_spec("ml_dtypes") is None:
            return Verdict(Outcome.REFUSED, "the package ml_dtypes is not installed")
        rng = np.random.default_rng([self._seed, dtype.onnx])
        x = sample(dtype, (3, 5, 7), rng)
        g = GraphBuilder()
        shape = [g.constant(np.array([7, 15]))] if op.op_type == "Reshape" else []
        model = g.model([g.node(op, g.input("x", dtype, x.shape), *shape)])
        want = x.reshape(7, 15) if op.op_type == "Reshape" else x.transpose(2, 0, 1)

        def run(compiled: CompiledModel) -> None:
            for given in (x, awkward(x)):
                require(same(compiled({"x": given})[0], want), f"{dtype} does not come back bit by bit")

        return self.claimed(model, run)

    # --- shapes ----------------------------------------------------------------------------------------------------

    def _shapes(self) -> Iterator[Check]:
        for name, (model, feeds) in _SHAPES.items():
            yield Check("shapes", name, partial(self.against_float64, model(), feeds()))

    def against_float64(self, model: Model, feeds: Feeds) -> Verdict:
        """The model with and without fusion: close to float64 references, and to each other."""
        want = evaluate(model, feeds)

        def run(compiled: CompiledModel) -> Verdict:
            fused, plain = compiled(feeds), self._results(model, feeds, FUSION=False)
            for index, expected in enumerate(want):
                for word, got in (("with", fused[index]), ("without", plain[index])):
                    require(close(got, expected, TOLERANCE), f"output {index} {word} fusion is {_differing(got, expected)}")
                require(close(fused[index], plain[index].astype(np.float64), TOLERANCE), f"output {index} depends on fusion")
            return PASSED if compiled.report().nodes else Verdict(Outcome.FOLDED)

        return self.claimed(model, run)

    # --- memory ----------------------------------------------------------------------------------------------------

    def _memory(self) -> Iterator[Check]:
        for name, place in VARIANTS.items():
            yield self.example_check("memory", f"inputs_{name}", partial(self._in_variant, place))
        yield self.example_check("memory", "inputs_are_not_written", self._inputs_unwritten)
        yield self.example_check("memory", "outputs_stay", self._outputs_stay)
        yield self.example_check("memory", "outputs_shared", self._outputs_shared)
        yield Check("memory", "outputs_are_not_inputs", self._outputs_apart)

    def _in_variant(self, place: Callable[[Array], Array], compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        plain, placed = compiled(feeds), compiled({name: place(array) for name, array in feeds.items()})
        _require_same(compiled, plain, placed, "the same values lying otherwise in memory give other results")

    def _inputs_unwritten(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        guarded = {name: Guarded(array) for name, array in feeds.items()}
        for _ in range(2):
            compiled({name: guard.array for name, guard in guarded.items()})
        for name, guard in guarded.items():
            require(guard.intact, f"the input {name!r}, or memory beside it, was written")

    def _outputs_stay(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        request = compiled.create_infer_request()
        first = request.infer(feeds)
        before = [first[i].copy() for i in range(len(first))]
        request.infer(other)
        for array, copy in zip(first.values(), before, strict=True):
            require(same(array, copy), "the next run changed the outputs of this one")
        request.close()

    def _outputs_shared(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        request = compiled.create_infer_request()
        for given in (feeds, other):
            want = compiled(given)
            _require_same(compiled, want, request.infer(given, share_outputs=True), "share_outputs changes the results")
        request.close()

    def _outputs_apart(self) -> Verdict:
        g = GraphBuilder()
        x = g.input("x", DType.FLOAT32, (3, 5))
        model = g.model([g.node(standard("Reshape")(), x, g.constant(np.array([15]))), x])

        def run(compiled: CompiledModel) -> None:
            given = np.arange(15, dtype=np.float32).reshape(3, 5)
            before = given.copy()
            for array in compiled({"x": given}).values():
                require(same(array.reshape(3, 5), before), "an input that is an output comes back changed")
                array += 1
            require(same(given, before), "an output shares its memory with an input")

        return self.claimed(model, run)

    # --- requests --------------------------------------------------------------------------------------------------

    def _requests(self) -> Iterator[Check]:
        yield self.example_check("requests", "two_runs", self._two_runs)
        yield self.example_check("requests", "threads", self._threads)
        yield self.example_check("requests", "background", self._background)
        yield self.example_check("requests", "open_close_open", self._reopened)
        yield self.example_check("requests", "on_device", request_checks.on_device)
        yield self.example_check("requests", "staged", request_checks.staged)
        yield self.example_check("requests", "traced", request_checks.traced)
        yield self.example_check("requests", "final_plan", request_checks.final_plan)

    def _two_runs(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        request = compiled.create_infer_request()
        first = request.infer(feeds)
        request.infer(other)
        _require_same(compiled, first, request.infer(feeds), "two runs of one request differ")
        request.close()
        _require_same(compiled, first, compiled(feeds), "two requests differ")

    def _threads(self, compiled: CompiledModel, *given: Feeds) -> None:
        want = [compiled(feeds) for feeds in given]
        found: list[list[Any]] = [[], []]
        together = threading.Barrier(len(given))
        threads = [
            threading.Thread(target=_repeat, args=(compiled, feeds, f, together)) for feeds, f in zip(given, found, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for expected, results in zip(want, found, strict=True):
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                _require_same(compiled, expected, result, "two requests in two threads disturb each other")

    def _background(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        requests = [compiled.create_infer_request() for _ in range(4)]
        for index, request in enumerate(requests):
            request.start_async((feeds, other)[index % 2])
        for index, request in enumerate(requests):
            request.wait()
            _require_same(compiled, compiled((feeds, other)[index % 2]), request.results, "a run in the background differs")
            request.close()

    def _reopened(self, compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
        want = compiled(feeds)
        for _ in range(2):
            with self._make_core() as core, self.compiled(compiled.model, core) as again:
                _require_same(again, want, again(feeds), "the device, closed and opened again, gives other results")

    # --- graphs ----------------------------------------------------------------------------------------------------

    def _graphs(self) -> Iterator[Check]:
        for index in range(RANDOM_GRAPHS):
            yield Check("graphs", f"random-{index}", partial(self._random_graph, index))

    def _random_graph(self, index: int) -> Verdict:
        rng = np.random.default_rng([self._seed, 1, index])
        model = random_model(rng, self._claimed_kinds)
        return self.against_float64(model, random_feeds(model, rng))

    @cached_property
    def _claimed_kinds(self) -> Sequence[Kind]:
        """The operators of random graphs that the device takes in float32; all of them when it takes none."""
        kinds = list(random_kinds().values())
        return [kind for kind in kinds if self._claims(kind)] or kinds

    def _claims(self, kind: Kind) -> bool:
        drawn = (random_model(np.random.default_rng([self._seed, 3, i]), [kind], nodes=1) for i in range(20))
        # An operator of images fits only some of the inputs that are drawn.
        model = next(model for model in drawn if model.graph.nodes)
        try:
            with self.compiled(model) as compiled:
                return bool(compiled.report().nodes)
        except UnsupportedNode:
            return False

    @cached_property
    def _example(self) -> tuple[Model, Feeds, Feeds]:
        """A graph of operators that the device claims, with two sets of inputs."""
        rng = np.random.default_rng([self._seed, 2])
        model = random_model(rng, self._claimed_kinds, nodes=6)
        return model, random_feeds(model, rng), random_feeds(model, rng)


def check_refusal(refusal: Refusal) -> None:
    """Raise `ConformanceFailure` unless the refusal has a reason of the closed vocabulary and a detail."""
    reason, detail = refusal.reason, refusal.detail
    require(isinstance(reason, Reason), f"the reason of a refusal is {reason!r}; accepted: dovetail.device.Reason")
    has_detail = isinstance(detail, str) and detail.strip()
    require(has_detail, f"a refusal for {reason.name} has no detail: say what is accepted")


def _run_twice(case: Case, compiled: CompiledModel) -> None:
    found = []
    for word, place in (("", read_only), ("with strided inputs: ", awkward)):
        feeds = {name: place(array) for name, array in case.feeds().items()}
        results = compiled(feeds)
        found.append([results[i] for i in range(len(case.expected))])
        wrong = passed(case, found[-1])
        require(not wrong, word + wrong)
    if not case.op.is_random:
        for first, second in zip(*found, strict=True):
            require(equal(first, second), "two runs give different results")


def _require_same(compiled: CompiledModel, first: Mapping[Any, Array], second: Mapping[Any, Array], message: str) -> None:
    """Bitwise; where requests run on several devices, which may round differently, within the tolerance."""
    for name, array in first.items():
        alike = equal(array, second[name])
        if not alike and len(compiled.devices) > 1:
            alike = close(second[name], array.astype(np.float64), TOLERANCE)
        require(alike, f"output {name!r}: {message}")


def _differing(got: Array, want: Array) -> str:
    if got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, expected the shape {list(want.shape)}"
    return (
        f"{float(np.max(np.abs(got - want), initial=0.0)):.3g} off float64, largest value {np.max(np.abs(want), initial=0.0):.3g}"
    )


def _repeat(compiled: CompiledModel, feeds: Feeds, found: list[Any], together: threading.Barrier) -> None:
    """Five runs, each of which begins when another thread's does."""
    try:
        request = compiled.create_infer_request()
        for _ in range(5):
            together.wait()
            found.append(request.infer(feeds))
        request.close()
    except threading.BrokenBarrierError:  # the other thread has an error
        pass
    except Exception as error:  # the thread that waits raises it
        together.abort()
        found.append(error)


def _guarded(model: Model, op: Operator, values: Sequence[Array]) -> Model:
    """The model with one more node for each of `values`, whose output must live until the end."""
    graph = model.graph
    guards = tuple(Node(f"guard{i}", op, (f"guard{i}",), (f"kept{i}",)) for i in range(len(values)))
    types = {**graph.types, **{f"guard{i}": TensorType.of(v) for i, v in enumerate(values)}}
    inputs = (*graph.inputs, *(f"guard{i}" for i in range(len(values))))
    outputs = (*graph.outputs, *(guard.outputs[0] for guard in guards))
    wide = graph.replace(nodes=(*guards, *graph.nodes), inputs=inputs, outputs=outputs, types=types)
    return Model(wide, source=model.source)


def _plain_types() -> frozenset[DType]:
    """The types that NumPy has without ml_dtypes."""
    return frozenset(d for d in DType if d is DType.STRING or hasattr(np, d.value) or d is DType.BOOL)


def _chain(*shape: int) -> Callable[[], Model]:
    def make() -> Model:
        g = GraphBuilder()
        x = g.input("x", DType.FLOAT32, shape)
        y = g.node(standard("Neg")(), g.node(standard("Relu")(), x))
        return g.model([y, g.node(standard("Add")(), x, y)])

    return make


def _one(op: Any, *shapes: tuple[int, ...], constants: Sequence[Any] = ()) -> Callable[[], Model]:
    def make() -> Model:
        g = GraphBuilder()
        names = [g.input(f"x{i}", DType.FLOAT32, shape) for i, shape in enumerate(shapes)]
        return g.model([g.node(op, *names, *(g.constant(c) for c in constants))])

    return make


def _fed(make: Callable[[], Model]) -> tuple[Callable[[], Model], Callable[[], Feeds]]:
    return make, lambda: random_feeds(make(), np.random.default_rng(11))


_SHAPES: Mapping[str, tuple[Callable[[], Model], Callable[[], Feeds]]] = {
    "scalar": _fed(_chain()),
    "one_element": _fed(_chain(1, 1, 1)),
    "empty": _fed(_chain(0)),
    "empty_batch": _fed(_chain(0, 3, 5)),
    "empty_inner": _fed(_chain(3, 0, 5)),
    "six_dimensions": _fed(_chain(2, 1, 3, 2, 1, 5)),
    "broadcast_scalars": _fed(_one(standard("Add")(), (), (2, 3))),
    "broadcast_empty": _fed(_one(standard("Add")(), (0, 3), (1, 1))),
    "concat_empty": _fed(_one(standard("Concat")(axis=0), (0, 3), (2, 3))),
    "sum_over_nothing": _fed(_one(standard("MatMul")(), (2, 0), (0, 3))),
    "reduce_nothing": _fed(_one(standard("ReduceSum")(), (2, 0), constants=[np.array([1])])),
}
"""Name -> a model of an awkward shape, and its inputs."""
