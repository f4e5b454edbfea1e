"""Every OpenCL call fails, alone or with all after it: the error is ours and says what was done, nothing leaks, the device works.

The seam is the name `cl` in this package's modules, the methods of pyopencl's classes, and the functions that are called past
pyopencl: a call that is chosen by its number raises what the driver would raise, or returns its status, instead of being made.
"""

import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo, DType
from dovetail.errors import DovetailError, InferError, OutOfMemory, UsageError
from dovetail.graph import GraphBuilder, Model
from dovetail_gpu_opencl import compiled, device, enqueue, memory, program, request
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx import find

MODULES = (memory, device, compiled, enqueue, program, request)
CLASSES = ("Buffer", "CommandQueue", "Context", "Kernel")
FUNCTIONS = (
    "Program",
    "create_image",
    "enqueue_copy",
    "enqueue_marker",
    "enqueue_nd_range_kernel",
    "get_supported_image_formats",
)
METHODS = {
    cl.CommandQueue: ("finish", "flush"),
    cl.Kernel: ("set_arg",),
    cl.Program: ("build", "get_info"),
    cl.Buffer: ("get_sub_region",),
}
WAITING = ("CommandQueue.finish", "download")
"""Calls that return when the device is done: results in locked memory are waited for by their copy."""
OUT_OF_RESOURCES, ALLOCATION_FAILURE = cl.status_code.OUT_OF_RESOURCES, cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
WORDS = ("node '", "allocating", "uploading", "creating", "waiting")
"""The action that an error names."""
X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
ROWS = np.array([3, 0])
WEIGHTS = np.linspace(1, 2, 15, dtype=np.float32).reshape(5, 3)


def failure(code: int, name: str) -> cl.Error:
    """The exception of pyopencl for this code of the driver."""
    kind = cl.MemoryError if code == ALLOCATION_FAILURE else cl.RuntimeError
    return kind(cl._cl._ErrorRecord("made to fail", code, name))


class Driver:
    """Counts calls and living objects; the call with number `at` fails, those after it too when `lost`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.live = self.most = 0
        self.at = 0
        self.code: int = OUT_OF_RESOURCES
        self.lost = self.again = False
        self.before: Callable[[str], None] = lambda name: None
        self._lock = threading.Lock()

    def plan(self, at: int, code: int = OUT_OF_RESOURCES, *, lost: bool = False) -> None:
        self.calls, self.at, self.code, self.lost, self.again = [], at, code, lost, False

    def enter(self, name: str) -> None:
        self.before(name)
        with self._lock:
            self.calls.append(name)
            number = len(self.calls)
        if self.at and (number == self.at or self.again or (self.lost and number > self.at)):
            self.again = False
            raise failure(self.code, name)

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            waits = name == "enqueue_copy" and isinstance(arguments[1], np.ndarray) and options.get("is_blocking", True)
            self.enter("download" if waits else name)
            return function(*arguments, **options)

        return call

    def past_pyopencl(self, find: Callable[[str], Any]) -> Callable[[str], Any]:
        """As `find`: functions that return the status of a call that fails. pyopencl, asked again, then raises the same."""

        def found(name: str) -> Callable[..., Any]:
            function, creates, releases = find(name), name == "clCreateKernel", name == "clReleaseKernel"

            def call(*arguments: Any) -> Any:
                try:
                    if not releases:
                        self.enter(name)
                except cl.Error:
                    self.again = True
                    return None if creates else self.code
                self.live += creates - releases
                self.most = max(self.most, self.live)
                return function(*arguments)

            return call

        return found

    def counted(self, name: str) -> type:
        driver = self

        class Counted(getattr(cl, name)):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                locked = name == "Buffer" and arguments[1] & cl.mem_flags.ALLOC_HOST_PTR
                driver.enter("locked memory" if locked else name)
                super().__init__(*arguments, **options)
                driver.live += 1
                driver.most = max(driver.most, driver.live)
                self.is_counted = True

            def __del__(self) -> None:
                driver.live -= getattr(self, "is_counted", False)

        return Counted


class Namespace:
    """pyopencl, with some names replaced."""

    def __init__(self, replaced: Mapping[str, Any]) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(cl, name)


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    gc.collect()
    gc.freeze()  # collecting after each attempt looks at what the attempt made, not at everything that was ever imported
    replaced = {name: made.counted(name) for name in CLASSES}
    functions = {name: made.wrapped(name, getattr(cl, name)) for name in FUNCTIONS}
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "cl", Namespace({**replaced, **functions}))
        patch.setattr(enqueue, "function", made.past_pyopencl(enqueue.function))
        for owner, names in METHODS.items():
            for name in names:
                patch.setattr(owner, name, made.wrapped(f"{owner.__name__}.{name}", getattr(owner, name)))
        yield made


@pytest.fixture(params=["as it is", "memory of its own"])
def memories(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device as it is, and as a GPU that does not share the memory of the host: flags and small results are locked then."""
    query = Capabilities.query
    own = staticmethod(lambda device: dataclasses.replace(query(device), kind="GPU", unified_memory=False))
    if request.param != "as it is":
        monkeypatch.setattr(Capabilities, "query", own)


@pytest.fixture(scope="module")
def model() -> Model:
    """A product with weights, a Gather that may set a fault flag, two branches, a reduction."""
    g = GraphBuilder()

    def op(name: str, **attributes: Any) -> Any:
        found = find(name, 18)
        assert found is not None
        return found(**attributes)

    x, i = g.input("x", "float32", X.shape), g.input("i", "int64", ROWS.shape)
    y = g.node(op("Relu"), g.node(op("MatMul"), x, g.constant(WEIGHTS)), name="product")
    picked = g.node(op("Gather"), y, i, name="picked")
    left, right = g.node(op("Softmax"), picked, name="soft"), g.node(op("ReduceMax", keepdims=0), picked, name="largest")
    return g.model([left, right])


def scenario(core: dovetail.Core, model: Model, name: str, options: Mapping[str, Any]) -> list[NDArray[Any]]:
    """Compile, run, run in the background, run again, close."""
    with core.compile_model(model, name, options) as compiled:
        request = compiled.create_infer_request()
        try:
            first = request.infer({"x": X, "i": ROWS})
            request.start_async({"x": X, "i": ROWS})
            request.wait()
            np.testing.assert_array_equal(request.results[0], first[0])
            return [request.infer({"x": X, "i": ROWS})[i] for i in range(2)]
        finally:
            request.close()


Check = Callable[[list[NDArray[Any]]], None]


def check(results: list[NDArray[Any]]) -> None:
    picked = np.maximum(X.astype(np.float64) @ WEIGHTS, 0)[ROWS]
    powers = np.exp(picked - picked.max(axis=1, keepdims=True))
    np.testing.assert_allclose(results[0], powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(results[1], picked.max(), rtol=1e-6)


def attempt(
    core: dovetail.Core, model: Model, name: str, options: Mapping[str, Any], check: Check
) -> tuple[type[DovetailError] | None, str]:
    """The kind and text of the error, None when the call that failed could be done without."""
    try:
        check(scenario(core, model, name, options))
    except DovetailError as error:
        return type(error), str(error)
    return None, ""


IN_ORDER: Mapping[str, Any] = {}
OUT_OF_ORDER, DEBUG = {"QUEUE": "OUT_OF_ORDER"}, {"DEBUG_BUFFERS": True}
KINDS: dict[str, tuple[Mapping[str, Any], int, bool]] = {
    "memory": (IN_ORDER, ALLOCATION_FAILURE, False),
    "lost": (IN_ORDER, OUT_OF_RESOURCES, True),
    "out of order": (OUT_OF_ORDER, OUT_OF_RESOURCES, False),
    "guard bytes": (DEBUG, OUT_OF_RESOURCES, False),
}
SAMPLE = 8
"""Calls of a kind that fail; all of them with DOVETAIL_EXHAUSTIVE=1."""
Sampled = Callable[[Sequence[Any], int], Sequence[Any]]


@pytest.mark.exhaustive(0.25)  # a run of the model for each call of the driver
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("memories")
def test_every_call(kind: str, driver: Driver, info: DeviceInfo, model: Model, sampled: Sampled) -> None:
    if kind not in ("memory", "lost") and info.name != "OPENCL.0":
        pytest.skip("one device is enough for what depends on none")
    if KINDS[kind][0] is OUT_OF_ORDER and not OpenCLDevice(info).caps.out_of_order:
        pytest.skip("this device has no out-of-order queues")
    every_call(sampled, driver, info, model, check, *KINDS[kind])


def every_call(
    sampled: Sampled,
    driver: Driver,
    info: DeviceInfo,
    model: Model,
    check: Check,
    options: Mapping[str, Any],
    code: int,
    lost: bool,
) -> None:
    for _ in range(2):  # the first time fills the cache
        driver.plan(0)
        check(scenario(dovetail.Core(), model, info.name, options))
    total = len(driver.calls)
    assert total > 30
    assert driver.most > 10
    harmless = []
    for number in sampled(range(1, total + 1), SAMPLE):
        core = dovetail.Core()
        driver.plan(number, code, lost=lost)
        error, said = attempt(core, model, info.name, options, check)
        failed = driver.calls[number - 1]
        if error is None:
            harmless.append(failed)
        else:
            assert error is OutOfMemory, (number, failed, said)
            assert "made to fail" in said, (number, failed, said)
            assert any(word in said for word in WORDS), (number, failed, said)
        driver.plan(0)
        check(scenario(core, model, info.name, options))
        del core
        gc.collect()
        assert driver.live == 0, f"call {number}, {failed}: {driver.live} objects are left"
    # A binary that cannot be loaded costs a build, and memory that cannot be locked some time; all other calls are needed.
    assert set(harmless) <= {"Program", "Program.build", "Program.get_info", "locked memory"}


def test_every_call_of_a_quantized_model(driver: Driver, infos: Sequence[DeviceInfo], sampled: Sampled) -> None:
    """Two launches that share a result, weights that the kernel lays out, a chain, bytes between nodes, a table of places."""
    g = GraphBuilder()

    def op(name: str, **attributes: Any) -> Any:
        found = find(name, 24)
        assert found is not None
        return found(**attributes)

    x, i = g.input("x", "float32", X.shape), g.input("i", "int64", ROWS.shape)
    stored, scale, zero = g.node(op("DynamicQuantizeLinear"), x, outputs=["stored", "scale", "zero"], name="quantized")
    weights = np.round(WEIGHTS * 10).astype(np.int8)
    whole = g.node(op("MatMulInteger"), stored, g.constant(weights), zero, name="product")
    real = g.node(op("Mul"), g.node(op("Cast", to=DType.FLOAT32), whole), scale)
    moved = g.node(
        op("ScatterND", reduction="add"),
        g.constant(np.zeros((4, 3), np.float32)),
        g.node(op("Unsqueeze"), i, g.constant(np.array([1]))),
        g.node(op("Gather"), real, i),
    )
    expected = np.zeros((4, 3))
    expected[ROWS] = (X.astype(np.float64) @ weights)[ROWS]

    def check(results: list[NDArray[Any]]) -> None:
        np.testing.assert_allclose(results[0], expected, atol=0.4)  # numbers of 8 bits, ten times weights of up to 20
        assert results[1].dtype == np.uint8

    every_call(sampled, driver, infos[0], g.model([moved, stored]), check, IN_ORDER, OUT_OF_RESOURCES, False)


# --- requests in the background --------------------------------------------------------------------------------------


class Gate:
    """Holds every thread that waits for the device until it is opened; `finishing` counts them."""

    def __init__(self, driver: Driver) -> None:
        self._open = threading.Event()
        self.finishing = threading.Semaphore(0)
        driver.before = self._pass

    def _pass(self, name: str) -> None:
        if name in WAITING and not self._open.is_set():
            self.finishing.release()
            assert self._open.wait(600)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.finishing.acquire(timeout=600)

    def open(self) -> None:
        self._open.set()


def feeds(row: int) -> dict[str, NDArray[Any]]:
    return {"x": X, "i": np.array([row, row])}


def largest(row: int) -> float:
    return float(np.maximum(X.astype(np.float64) @ WEIGHTS, 0)[row].max())


@pytest.mark.usefixtures("memories")
def test_requests_are_on_the_device_at_the_same_time(driver: Driver, info: DeviceInfo, model: Model) -> None:
    with dovetail.Core().compile_model(model, info.name) as compiled:
        requests = [compiled.create_infer_request() for _ in range(3)]
        for request in requests:
            request.infer(feeds(0))
        gate = Gate(driver)
        for row, request in enumerate(requests):
            request.start_async(feeds(row))
        gate.wait_for(3)  # all three have enqueued everything, and none has ended
        assert [request.wait(0.01) for request in requests] == [False] * 3
        gate.open()
        for row, request in enumerate(requests):
            assert request.wait(600)
            np.testing.assert_allclose(request.results[1], largest(row), rtol=1e-6)


@pytest.mark.usefixtures("memories")
def test_a_queue_goes_on_after_runs_that_fail(driver: Driver, info: DeviceInfo, model: Model) -> None:
    """Rows 4 and -5 are outside: those runs fail, the others give their results, and so does the next round."""
    with dovetail.Core().compile_model(model, info.name) as compiled:
        queue = dovetail.AsyncInferQueue(compiled, jobs=3)
        found: dict[int, float] = {}
        queue.set_callback(lambda request, row: found.update({row: float(request.results[1])}))
        for _ in range(2):
            found.clear()
            for row in (0, 4, 1, -5, 2, 4, 3, 0):
                queue.start_async(feeds(row), row)
            with pytest.raises(InferError, match=r"node 'picked' \(Gather\): an index is outside axis 0 of size 4"):
                queue.wait_all()
            assert found == pytest.approx({row: largest(row) for row in range(4)})
            queue.wait_all()


@pytest.mark.usefixtures("memories")
def test_a_device_that_is_lost_while_results_are_waited_for(driver: Driver, info: DeviceInfo, model: Model) -> None:
    """Every run of the queue fails with the driver's word; when the device is back, the same requests work."""

    def lost(name: str) -> None:
        if name in WAITING:
            raise failure(OUT_OF_RESOURCES, "clFinish")

    with dovetail.Core().compile_model(model, info.name) as compiled:
        queue = dovetail.AsyncInferQueue(compiled, jobs=2)
        found: list[float] = []
        queue.set_callback(lambda request, row: found.append(float(request.results[1])))
        driver.before = lost
        for row in range(4):
            queue.start_async(feeds(row), row)
        with pytest.raises(OutOfMemory, match=r"waiting for the results.*OUT_OF_RESOURCES - clFinish"):
            queue.wait_all()
        assert found == []
        driver.before = lambda name: None
        for row in range(4):
            queue.start_async(feeds(row), row)
        queue.wait_all()
        assert sorted(found) == pytest.approx(sorted(largest(row) for row in range(4)))


@pytest.mark.usefixtures("memories")
def test_a_lost_run_leaves_no_fault_behind(driver: Driver, info: DeviceInfo, model: Model) -> None:
    """The kernel says that the index is wrong, and the device is lost before we hear of it: the next run knows nothing of it."""

    def lost(name: str) -> None:
        if name in WAITING:
            raise failure(OUT_OF_RESOURCES, "clFinish")

    with dovetail.Core().compile_model(model, info.name) as compiled:
        request = compiled.create_infer_request()
        driver.before = lost
        with pytest.raises(OutOfMemory):
            request.infer(feeds(4))
        driver.before = lambda name: None
        np.testing.assert_allclose(request.infer(feeds(1))[1], largest(1), rtol=1e-6)


@pytest.mark.usefixtures("memories")
def test_closing_while_runs_are_under_way(driver: Driver, info: DeviceInfo, model: Model) -> None:
    """A request that runs cannot be closed; closing the model waits for the runs, whose results stay."""
    compiled = dovetail.Core().compile_model(model, info.name)
    request, other = compiled.create_infer_request(), compiled.create_infer_request()
    gate = Gate(driver)
    request.start_async(feeds(1))
    other.start_async(feeds(2))
    gate.wait_for(2)
    with pytest.raises(UsageError, match="the request is running"):
        request.close()
    with pytest.raises(UsageError, match="the request is running"):
        request.start_async(feeds(0))
    threading.Timer(0.05, gate.open).start()
    compiled.close()
    assert request.wait(0)
    assert other.wait(0)
    np.testing.assert_allclose([request.results[1], other.results[1]], [largest(1), largest(2)], rtol=1e-6)
    with pytest.raises(UsageError, match="the compiled model was closed"):
        compiled(feeds(0))
    with pytest.raises(UsageError, match="the compiled model was closed"):
        request.start_async(feeds(0))
    request.close()
    other.close()
    del compiled, request, other
    gc.collect()
    assert driver.live == 0


def test_arguments_are_set_while_the_device_computes(info: DeviceInfo, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run binds each launch before it launches it. One that cannot be bound is bound by the next run."""
    g = GraphBuilder()
    values, rows = g.input("values", "float32", (3, 2)), g.input("rows", "int64", (2,))
    taken = g.node(bench.op("Gather", axis=0), values, rows, name="first")
    g.node(bench.op("Gather", axis=0), taken, rows, outputs=["z"], name="second")
    bound = OpenCLDevice(info).compile(bench.typed(g.graph(["z"])), {}).create_request()
    steps: list[str] = []
    bind, enqueue, can = request.bind, request.calls, [True, False, True]

    def binding(compiled: Any, command: Any, *rest: Any) -> Any:
        steps.append(f"bind {command.name}")
        found = bind(compiled, command, *rest)
        if not can.pop(0):
            raise MemoryError("no place")
        return found

    def calling(*given: Any) -> Any:
        return [lambda call=call: (steps.append("launch"), call())[1] for call in enqueue(*given)]

    monkeypatch.setattr(request, "bind", binding)
    monkeypatch.setattr(request, "calls", calling)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert not steps
    with pytest.raises(OutOfMemory, match=r"node 'second' .*: setting the arguments of .*: no place"):
        bound.run([array, np.array([1, 0])])
    assert steps == ["bind first", "launch", "bind second"]
    steps.clear()
    np.testing.assert_array_equal(bound.run([array, np.array([1, 0])])[0], array[:2])
    assert steps == ["launch", "bind second", "launch"]
    with pytest.raises(InferError, match="node 'second'"):  # whose flag is its own
        bound.run([array, np.array([1, 2])])
