"""The device as a whole: the library, options, threads, empty tensors, models against onnxruntime, and GELU."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.device import DeviceUnavailable, Unavailable
from dovetail.errors import UsageError
from dovetail_cpu_onednn import library as found
from dovetail_cpu_onednn.device import OnednnDevice, infos
from dovetail_cpu_onednn.version import Version


def model(nodes, inputs, constants, shape):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return made.SerializeToString()


def block(rng, tokens=None):
    """An exported feed-forward block of a transformer: product, bias, GELU, product, residual, normalisation."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"]),
        helper.make_node("Add", ["b1", "h0"], ["h"]),
        helper.make_node("Div", ["h", "sqrt2"], ["e0"]),
        helper.make_node("Erf", ["e0"], ["e1"]),
        helper.make_node("Add", ["e1", "one"], ["e2"]),
        helper.make_node("Mul", ["h", "e2"], ["e3"]),
        helper.make_node("Mul", ["e3", "half"], ["g"]),
        helper.make_node("MatMul", ["g", "w2"], ["o"]),
        helper.make_node("Add", ["o", "x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "s", "t"], ["y"], axis=-1),
    ]
    constants = {
        "w1": rng.standard_normal((24, 40)) / 5,
        "b1": rng.standard_normal(40),
        "w2": rng.standard_normal((40, 24)) / 6,
        "s": rng.standard_normal(24),
        "t": rng.standard_normal(24),
        "sqrt2": np.sqrt(2),
        "one": 1,
        "half": 0.5,
    }
    return model(nodes, {"x": (2, tokens or "S", 24)}, constants, (2, tokens or "S", 24))


def compiled_for(made, options=None):
    core = dovetail.Core()
    return core.compile_model(core.read_model(made, "onnx"), "ONEDNN", options or {})


def expected(made, x):
    return onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_feed_forward_block():
    rng = np.random.default_rng(0)
    made = block(rng)
    compiled = compiled_for(made)
    for tokens in (1, 7, 0, 33):
        x = rng.standard_normal((2, tokens, 24)).astype(np.float32)
        got = compiled({"x": x})["y"]
        assert got.shape == x.shape
        np.testing.assert_allclose(got, expected(made, x) if tokens else x, rtol=1e-4, atol=1e-4)
    kernels = {node.op: node.kernel for node in compiled.report().nodes}
    assert "Erf" not in kernels
    assert next(n.post_ops for n in compiled.report().nodes if n.op == "MatMul") == ("add", "gelu_erf")
    assert all(n.device.startswith("ONEDNN") for n in compiled.report().nodes)


def test_nan_and_infinity_alone():
    """Activations and softmax by themselves keep NaN, which oneDNN's would turn into numbers."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Softmax", ["r"], ["y"], axis=-1)]
    made = model(nodes, {"x": (3, 5)}, {}, (3, 5))
    compiled = compiled_for(made)
    x = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(compiled({"x": x})["y"], expected(made, x), rtol=1e-5)
    x[1, 2] = np.nan
    got = compiled({"x": x})["y"]
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2]], expected(made, x)[[0, 2]], rtol=1e-5)


def test_threads_share_primitives():
    """Many requests at once give bit-equal results."""
    rng = np.random.default_rng(3)
    compiled = compiled_for(block(rng, tokens=9), {"INFERENCE_NUM_THREADS": 1})
    xs = [rng.standard_normal((2, 9, 24)).astype(np.float32) for _ in range(4)]
    want = [compiled({"x": x})["y"].copy() for x in xs]

    def work(index):
        request = compiled.create_infer_request()
        for turn in range(50):
            which = (index + turn) % 4
            np.testing.assert_array_equal(request.infer({"x": xs[which]})["y"], want[which])
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"INFERENCE_NUM_THREADS": 0}, "positive integer"),
        ({"INFERENCE_NUM_THREADS": "2"}, "positive integer"),
        ({"INFERENCE_PRECISION_HINT": "i8"}, "f32"),
        ({"SPEED": 1}, "'SPEED'"),
        ({"INFERENCE_NUM_THREADS": True}, "positive integer"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(UsageError, match=message):
        OnednnDevice(infos()[0], options)


def test_threads_by_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert found.default_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "all")
    monkeypatch.setattr(found, "usable_cpus", lambda: 5)
    assert found.default_threads() == 5


AFFINITY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dovetail_cpu_onednn.device import infos
print(infos()[0].details["threads"])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process choose its CPUs so")
@pytest.mark.parametrize(("environment", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_threads_by_affinity(environment, threads):
    env = {**environment, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", AFFINITY], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == threads


SCRIPT = """
from dovetail_cpu_onednn.device import infos
answer = infos()
print(type(answer).__name__, answer.reason, "|", answer.hint)
"""


@pytest.mark.parametrize("content", [None, b"not a library"])
def test_library_that_is_missing_or_wrong(tmp_path, content):
    """Unavailable, with the path that was tried and what to do; never a crash."""
    path = tmp_path / "libdnnl.so.3"
    if content is not None:
        path.write_bytes(content)
    env = {"DOVETAIL_ONEDNN_LIBRARY": str(path), "PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.startswith("Unavailable")
    assert str(path) in done.stdout
    assert "pip install onednn-cpu-gomp" in done.stdout


def test_library_of_another_kind(monkeypatch):
    """A shared library without oneDNN's functions is distinguished from one that cannot be loaded."""
    answer = found._open("libc.so.6")
    assert isinstance(answer, str)
    assert "is not oneDNN 3" in answer


@pytest.mark.parametrize("version", [(2, 7, 5), (3, 1, 1), (4, 0, 0)])
def test_library_of_another_version(monkeypatch, version):
    monkeypatch.setattr(found, "version_of", lambda cdll: Version(version, ""))
    monkeypatch.setattr(found, "_loaded", {})
    answer = found.load("libc.so.6")
    assert isinstance(answer, Unavailable)
    assert answer.reason == f"libc.so.6 is oneDNN {'.'.join(map(str, version))}; accepted: 3.2 and later versions 3"
    assert "pip install onednn-cpu-gomp" in answer.hint
    assert not found._loaded


def test_library_for_queues(tmp_path, monkeypatch):
    """A CPU engine of SYCL is refused with what to do: it has a device only where SYCL finds one, and memory of its own."""
    source, built = tmp_path / "version.c", tmp_path / "libdnnl.so.3"
    source.write_text(
        'struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } found = {3, 13, 2, "x", 512, 512};\n'
        "void *dnnl_version(void) { return &found; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    monkeypatch.setattr(found, "_loaded", {})
    answer = found.load(str(built))
    assert isinstance(answer, Unavailable)
    assert answer.reason == f"{built} computes by SYCL on CPUs; accepted: a oneDNN for OpenMP, TBB or one thread"
    assert "pip install onednn-cpu-gomp" in answer.hint
    assert not found._loaded


def test_library_that_only_the_record_of_its_distribution_finds(tmp_path, monkeypatch):
    """`pip install --user` and pex install for another prefix than that of the interpreter."""
    library = tmp_path / "lib" / "libdnnl.so.3"
    library.parent.mkdir()
    library.touch()
    packages = tmp_path / "lib" / "python3" / "site-packages"
    record = packages / "onednn_cpu_gomp-2023.2.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("onednn/LICENSE,,\n../../libdnnl.so.3,sha256=x,54\n../../gone/libdnnl.so.3,,\n")
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    monkeypatch.setattr(sys, "path", ["/nowhere", str(packages)])
    assert next(found._candidates()) == str(library)


NAMED = """
import sys
from dovetail_cpu_onednn import library
path = sys.argv[1]
print(library.load(path).path == path, library.load().path == path, library.library().path == path)
"""


def test_library_by_option(tmp_path):
    """A library anywhere, by the path that the option LIBRARY has."""
    link = tmp_path / "libmine.so"
    link.symlink_to(os.path.realpath(infos()[0].details["library"]))
    env = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", NAMED, str(link)], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["True"] * 3
    env["DOVETAIL_ONEDNN_LIBRARY"] = str(link)
    done = subprocess.run([sys.executable, "-c", NAMED, str(link)], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["True"] * 3


OPTION = """
import sys
import numpy as np
import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.relu import Relu
from dovetail_cpu_onednn.library import library

copy, link = sys.argv[1:]
core = dovetail.Core()
print([info.name for info in core.devices if info.type == "ONEDNN"])  # this looks at the library of the environment
g = GraphBuilder()
model = g.model([g.node(Relu(), g.input("x", "float32", (3,)))])
for path in (copy, link):
    with core.compile_model(model, "ONEDNN", {"LIBRARY": path}) as compiled:
        print(library().path == copy, compiled(np.array([-1, 0, 2], np.float32))[0].tolist())
try:
    core.compile_model(model, "ONEDNN", {"LIBRARY": "/elsewhere/libdnnl.so.3"})
except dovetail.errors.DeviceUnavailable as error:
    print(error.message, error.hint)
"""


def test_library_by_property_where_another_is_installed(tmp_path):
    """The property chooses before the first computation, and for the whole process."""
    copy, link = tmp_path / "libcopy.so", tmp_path / "liblink.so"
    shutil.copyfile(os.path.realpath(infos()[0].details["library"]), copy)
    link.symlink_to(copy)
    env = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    command = [sys.executable, "-c", OPTION, str(copy), str(link)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    devices, first, second, refusal = done.stdout.splitlines()
    assert devices == "['ONEDNN']"
    assert first == second == "True [0.0, 0.0, 2.0]"
    assert f"computes with oneDNN from {copy} already, not /elsewhere/libdnnl.so.3" in refusal
    assert "DOVETAIL_ONEDNN_LIBRARY" in refusal


def test_one_library_for_a_process():
    answer = found.load("/elsewhere/libdnnl.so.3")
    assert isinstance(answer, Unavailable)
    assert "/elsewhere/libdnnl.so.3" in answer.reason
    other = {"LIBRARY": "/elsewhere/libdnnl.so.3"}
    with pytest.raises(DeviceUnavailable, match="elsewhere"):
        OnednnDevice(infos()[0], other)
    with pytest.raises(DeviceUnavailable, match="elsewhere"):
        compiled_for(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (3,)}, {}, (3,)), other)
    same = {"LIBRARY": infos()[0].details["library"]}
    assert compiled_for(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (3,)}, {}, (3,)), same)


LOADED = """
import os
from dovetail_cpu_onednn.device import infos
assert infos()[0].name == "ONEDNN"
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="oneDNN uses libgomp on Linux only")
@pytest.mark.parametrize(("own", "used", "left"), [({}, "2000", "None"), ({"GOMP_SPINCOUNT": "77"}, "77", "77")])
def test_idle_threads_sleep_soon(own, used, left):
    """libgomp prints its settings when it is loaded; the environment stays as it was."""
    env = {**own, "OMP_DISPLAY_ENV": "verbose", "PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, env=env, check=True)
    assert f"GOMP_SPINCOUNT = '{used}'" in done.stderr
    assert done.stdout.strip() == left


def test_shared_outputs_as_inputs_of_the_next_run() -> None:
    """The primitives would write the result where they read it."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"]), helper.make_node("Flatten", ["y"], ["z"], axis=0)]
    made = onnx.load_from_string(model(nodes, {"a": (300, 300), "b": (300, 300)}, {}, (300, 300)))
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, (1, 90000)))
    core = dovetail.Core()
    request = core.compile_model(core.read_model(made.SerializeToString(), "onnx"), "ONEDNN").create_infer_request()
    a = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    for _ in range(2):
        y = request.infer({"a": a, "b": a}, share_outputs=True)["y"]
        wanted = a.astype(np.float64) @ y
        np.testing.assert_allclose(request.infer({"a": a, "b": y})["y"], wanted, atol=1e-5 * np.abs(wanted).max())
