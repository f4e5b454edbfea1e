"""Shared by all tests of this repository: tiers, samples, seconds by package, and fixtures: the program, models, devices.

`pytest -m quick` runs the folders of `QUICK`, in under a minute on two cores. Of tests marked `exhaustive(share)` a share runs by
default, drawn with `DOVETAIL_SEED` (0 unless set); `DOVETAIL_EXHAUSTIVE=1` runs all of them.
"""

import functools
import gc
import json
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dovetail import Core
from dovetail.cli import program
from dovetail.device import DeviceInfo, TypedNode, Unavailable
from dovetail.hookspecs import hookimpl
from dovetail.plugins.discovery import index
from dovetail.testing import ReferenceDevice, register_device
from dovetail.virtual import Session, Targets, VirtualDevice

Refuses = Callable[[TypedNode], bool]

ROOT = Path(__file__).parent
SEED = int(os.environ.get("DOVETAIL_SEED", "0"))
EXHAUSTIVE = os.environ.get("DOVETAIL_EXHAUSTIVE") == "1"

QUICK = (
    "core/tests",
    "plugins/ops_onnx/tests",
    "plugins/cpu_numpy/tests",
    "plugins/frontend_onnx/tests",
    "plugins/frontend_pzkm/tests",
    "contrib/onnx_reference/tests",
    "tests/architecture",
)
"""Folders of the tier `quick`: no kernel is compiled, nothing is installed, no other runtime is started."""
SLOW = (
    "core/tests/cli",
    "core/tests/testing",
    "core/tests/plugins/test_doctor.py",
    "core/tests/runtime/test_endurance.py",
    "plugins/ops_onnx/tests/test_onnx_cases.py",
    "plugins/frontend_onnx/tests/test_onnx_models.py",
    "plugins/frontend_onnx/tests/test_writing.py",
    "plugins/frontend_pzkm/tests/test_malformed.py",
    "plugins/frontend_pzkm/tests/test_mutations.py",
)
"""Left out of them: tests that start processes, run every device, or take more than a few seconds."""


def pytest_configure() -> None:
    """Compiled kernels are not kept: making binaries costs PoCL as much as compiling, and the user's cache stays as it is.

    Tests of the caches delete the variable. Drivers keep caches of their own all the same.
    """
    os.environ.setdefault("DOVETAIL_CACHE_LIMIT", "0")


def pytest_report_header() -> str:
    """The seed of the samples, with which a failure is repeated."""
    return f"DOVETAIL_SEED={SEED}" + (" DOVETAIL_EXHAUSTIVE=1" if EXHAUSTIVE else "")


# --- tiers -----------------------------------------------------------------------------------------------------------


@functools.cache  # asked for each test
def _is_quick(path: Path) -> bool:
    def is_in(listed: str) -> bool:
        return path.is_relative_to(ROOT / listed)

    return any(map(is_in, QUICK)) and not any(map(is_in, SLOW))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` imports no file of other folders: that alone would take longer than its tests."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if config.option.markexpr == "quick" and is_test and not _is_quick(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the quick folders; `-m` looks at marks later."""
    if _is_quick(item.path):
        item.add_marker("quick")


# --- samples ---------------------------------------------------------------------------------------------------------


def _share(item: pytest.Item) -> float | None:
    """The least share that the marks of a test ask for; None for a test that always runs."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    # The checks of op packs end in the name of the device: `gelu-odd_size-OPENCL.0`.
    device = str(params.get("device", "")) or getattr(params.get("check"), "name", "").rpartition("-")[2]
    shares = [m.args[0] for m in item.iter_markers("exhaustive") if device.startswith(m.kwargs.get("device") or "")]
    return min(shares, default=None)


def _subject(item: pytest.Item) -> str:
    """The function of a test; for a check of a conformance kit, its operator, too, with which its name begins."""
    check = getattr(getattr(item, "callspec", None), "params", {}).get("check")
    return item.nodeid.partition("[")[0] + ("" if check is None else f" {check.name.partition('-')[0]}")


def _drawn(family: Sequence[pytest.Item], share: float, seed: str) -> list[pytest.Item]:
    """A share of the tests of a file, drawn at random; one of each subject before a second of any."""
    shuffled = random.Random(seed).sample(family, len(family))
    met: set[str] = set()
    first, others = list[pytest.Item](), list[pytest.Item]()
    for item in shuffled:
        subject = _subject(item)
        (others if subject in met else first).append(item)
        met.add(subject)
    return (first + others)[: math.ceil(share * len(family))]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the samples leave out. Comes after `-k` and `-m`: of tests that are asked for by name at least one runs,
    unless their share is 0.
    """
    families: dict[tuple[str, float], list[pytest.Item]] = defaultdict(list)
    for item in items:
        share = None if EXHAUSTIVE else _share(item)
        if share is not None:
            families[item.path.as_posix(), share].append(item)
    left_out: set[pytest.Item] = set()
    for (path, share), family in families.items():
        left_out |= set(family) - set(_drawn(family, share, f"{SEED} {Path(path).name}"))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def sampled() -> Callable[[Sequence[Any], int], Sequence[Any]]:
    """`sampled(cases, count)`: a sample of them in their order, drawn with DOVETAIL_SEED; all with DOVETAIL_EXHAUSTIVE=1."""

    def draw(cases: Sequence[Any], count: int) -> Sequence[Any]:
        if EXHAUSTIVE or len(cases) <= count:
            return cases
        return [cases[i] for i in sorted(random.Random(SEED).sample(range(len(cases)), count))]

    return draw


# --- random numbers --------------------------------------------------------------------------------------------------

_GENERATORS: dict[Any, list[tuple[np.random.Generator, Mapping[str, Any]]]] = {}
"""The generators that modules of tests keep, and their states before the first test."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note them, once all modules are imported: some share a generator. What was collected stays: the garbage collector does not
    look at its million objects again, which takes more than a second each time that a test collects.
    """
    gc.freeze()
    for module in {getattr(item, "module", None) for item in session.items} - {None}:
        found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
        _GENERATORS[module] = [(generator, generator.bit_generator.state) for generator in found]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the same numbers, whichever tests ran before it: with several workers that differs from run to run."""
    for generator, state in _GENERATORS.get(getattr(item, "module", None), ()):
        generator.bit_generator.state = state


# --- seconds by package ----------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In CI, how long the tests of each package and each folder of tests/ took, summed over the workers."""
    if "DOVETAIL_CI" not in os.environ:
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                first, second, *_ = (*report.nodeid.split("::")[0].split("/"), "")
                seconds[first if first == "core" else f"{first}/{second}"] += report.duration
    terminalreporter.section("seconds by package")
    for package, total in seconds.most_common():
        terminalreporter.write_line(f"{total:8.1f} {package}")
    terminalreporter.write_line(f"{seconds.total():8.1f} in all")


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _opencl_stays_open(pytestconfig: pytest.Config) -> list[Any]:
    """Each OpenCL device is open all the time: PoCL frees its library of functions with its last context, and takes half a second
    of the CPU to read it for the next one. The tier `quick` compiles nothing.
    """
    if pytestconfig.option.markexpr == "quick" or find_spec("dovetail_gpu_opencl") is None:
        return []
    from dovetail_gpu_opencl import dovetail_device_info
    from dovetail_gpu_opencl.device import OpenCLDevice

    found = dovetail_device_info({})
    return [] if isinstance(found, Unavailable) else [OpenCLDevice(info) for info in found]


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _commands_of_plugins() -> None:
    """The program looks for plugins once: here, because a test may have no plugins installed, or blocked ones."""
    program.added()


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`invoke("devices", "--json")`: the program in this process, in an empty working folder; unhandled errors are raised."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(a) for a in arguments], prog_name="dovetail", catch_exceptions=False)
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    return run


@pytest.fixture
def invoke_json(invoke: Callable[..., Result]) -> Callable[..., Any]:
    """As `invoke`, with `--json`; returns what is on stdout, all of which must be one JSON document."""

    def run(*arguments: object, code: int = 0) -> Any:
        return json.loads(invoke(*arguments, "--json", code=code).stdout)

    return run


# --- models and devices ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def core() -> Core:
    """A session with all that is installed, for tests that change nothing of it."""
    return Core(config=False)


@pytest.fixture
def rng() -> np.random.Generator:
    """The same random numbers in each test."""
    return np.random.default_rng(20)


def save_model(path: Path, nodes: list[Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any], **constants: Any) -> Path:
    """An ONNX file with float inputs and outputs of the given shapes."""
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture(name="save_model")
def save_model_fixture() -> Callable[..., Path]:
    """`save_model(path, nodes, inputs, outputs, **constants)`."""
    return save_model


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """y = relu(x w + b), x [N, 3], w [3, 2]: 8 parameters, and for N = 1 12 FLOPs in MatMul and 2 each in Add and Relu."""
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    weights = {"w": np.array([[1, -1], [2, 0], [0, 3]], np.float32), "b": np.array([0.5, -4], np.float32)}
    return save_model(tmp_path / "linear.onnx", nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, **weights)


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    """sum = left + right, both [2, 2]."""
    from onnx import helper

    node = helper.make_node("Add", ["left", "right"], ["sum"], "sum")
    return save_model(tmp_path / "two.onnx", [node], {"left": [2, 2], "right": [2, 2]}, {"sum": [2, 2]})


class Together(VirtualDevice):
    """`TOGETHER:A,B`: each node on the first device that takes it."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        return (Targets(tuple(session.info(name).name for name in arguments.split(",")), properties),)


def virtual_plugin(device: VirtualDevice) -> Any:
    """A plugin that gives a virtual device."""

    @hookimpl
    def dovetail_virtual_device() -> VirtualDevice:
        return device

    return SimpleNamespace(dovetail_api="1.0", dovetail_virtual_device=dovetail_virtual_device)


@pytest.fixture
def register_virtual() -> Callable[[Core, str, VirtualDevice], None]:
    """`register_virtual(core, "NAME", device)` adds a virtual device to a session."""

    def register(core: Core, name: str, device: VirtualDevice) -> None:
        core.plugins.register(virtual_plugin(device), name=f"toy-{name}", kind="virtual_devices", key=name)

    return register


@pytest.fixture
def toy_core(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`toy_core(A=refuses, B=refuses)` -> (Core, list of the devices opened).

    The session has these toy devices, `TOGETHER:A,B` and the standard operators, and nothing else.
    """
    installed = tuple(record for record in index() if record.distribution == "dovetail-ops-onnx")
    monkeypatch.setattr("dovetail.plugins.manager.index", lambda: installed)

    def make(**devices: Refuses) -> tuple[Core, list[ReferenceDevice]]:
        core = Core()
        core.plugins.register(virtual_plugin(Together()), name="toy-together", kind="virtual_devices", key="together")
        opened: list[ReferenceDevice] = []

        def opening(refuses: Refuses) -> Callable[[DeviceInfo], ReferenceDevice]:
            def open_device(info: DeviceInfo) -> ReferenceDevice:
                opened.append(ReferenceDevice(info, refuses))
                return opened[-1]

            return open_device

        for rank, (name, refuses) in enumerate(devices.items()):
            info = DeviceInfo(f"{name}.0", name, "CPU", f"toy {name}", -rank)
            register_device(core, info, opening(refuses), f"toy-{name.lower()}")
        return core, opened

    return make
