"""Sessions, options, values and bindings: each test runs on onnxruntime and on dovetail."""

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail_onnxruntime
from dovetail.device import DeviceArray
from dovetail_onnxruntime.feeds import result

FLOAT = TensorProto.FLOAT


def test_inputs_and_outputs_read_alike(ort: Any, add: bytes) -> None:
    session = ort.InferenceSession(add)
    assert [(a.name, a.type, a.shape) for a in session.get_inputs()] == [
        ("x", "tensor(float)", ["?", 3]),
        ("y", "tensor(float)", ["N", None]),
        ("z", "tensor(float)", [None, 3]),
    ]
    assert [(a.name, a.type, a.shape) for a in session.get_outputs()] == [
        ("s", "tensor(float)", [None, 3]),
        ("t", "tensor(float)", ["A", "B"]),
        ("u", "tensor(float)", ["Q", 3]),
    ]
    assert str(session.get_inputs()[0]) == "NodeArg(name='x', type='tensor(float)', shape=['?', 3])"


def test_the_model_of_a_session_is_written(ort: Any, add: bytes, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "written.onnx")
    feeds = {"x": np.ones((2, 3), np.float32), "y": np.ones((2, 3), np.float32), "z": np.ones((2, 3), np.float32)}
    want = ort.InferenceSession(add, options).run(None, feeds)
    found = ort.InferenceSession(options.optimized_model_filepath).run(None, feeds)
    assert [np.array_equal(*pair) for pair in zip(found, want, strict=True)] == [True] * 3


def test_a_file_of_onnxruntimes_own_format_is_not_written(add: bytes, tmp_path: Path) -> None:
    options = dovetail_onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "written.ort")
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED.*dovetail writes \.onnx"):
        dovetail_onnxruntime.InferenceSession(add, options)


def times(location: str = "") -> bytes:
    """A model y = w x; its w is 2, or in a file that is not there."""
    w = helper.make_tensor("w", FLOAT, [3], np.full(3, 2, np.float32))
    if location:
        w.ClearField("float_data")
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value=location)
    x, y = (helper.make_tensor_value_info(name, FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


@pytest.mark.parametrize("location", ["", "nothing.bin"])
def test_initializers_that_the_program_gives(ort: Any, location: str, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    values = [ort.OrtValue.ortvalue_from_numpy(np.array([3, 4, 5], np.float32)) for _ in range(2)]
    if location:
        options.add_external_initializers(["w"], values[:1])
    else:
        options.add_initializer("w", values[0])
        options.add_initializer("of another model", values[1])
    (tmp_path / "model.onnx").write_bytes(times(location))
    for source in (times(location), str(tmp_path / "model.onnx")):
        found = ort.InferenceSession(source, options).run(None, {"x": np.array([1, 2, 3], np.float32)})[0]
        assert found.tolist() == [3, 8, 15]


def test_an_external_initializer_that_the_model_lacks(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_external_initializers(["v"], [ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32))])
    with pytest.raises(Exception, match=r"FAIL.*Failed to find existing initializer with name v"):
        ort.InferenceSession(times(), options)


@pytest.mark.parametrize("source", ["nothing.onnx", b"garbage" * 10, b""], ids=["no file", "no model", "empty"])
def test_initializers_for_what_is_no_model(source: Any, tmp_path: Path) -> None:
    options = dovetail_onnxruntime.SessionOptions()
    options.add_initializer("w", dovetail_onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    given = str(tmp_path / source) if isinstance(source, str) else source
    errors = []
    for one in (None, options):
        with pytest.raises(Exception, match="ONNXRuntimeError") as raised:
            dovetail_onnxruntime.InferenceSession(given, one)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]


def test_initializers_beside_data_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(times("nothing.bin"))
    options = dovetail_onnxruntime.SessionOptions()
    options.add_initializer("v", dovetail_onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    with pytest.raises(Exception, match=r"FAIL.*model\.onnx.*nothing\.bin"):
        dovetail_onnxruntime.InferenceSession(str(path), options)


def test_initializers_of_another_type() -> None:
    options = dovetail_onnxruntime.SessionOptions()
    options.add_initializer("w", dovetail_onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(4, np.float32)))
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*'w' is .*FLOAT.*\[3\].*\[4\]"):
        dovetail_onnxruntime.InferenceSession(times(), options)
    with pytest.raises(Exception, match="2 names and 1 values"):
        options.add_external_initializers(["a", "b"], list(options.initializers.values()))


def test_a_provider_that_nobody_knows(ort: Any, add: bytes) -> None:
    session = ort.InferenceSession(add, providers=["CPUExecutionProvider"])
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(RuntimeError, match="Unknown Provider Type"),
    ):
        session.set_providers(["Nonsense"])


def test_open_dimensions_of_outputs_that_follow_from_the_model_are_numbers(ort: Any, make: Any) -> None:
    """Exporters name each dimension that they do not know; programs compute from those names what they bind."""
    weights = helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", FLOAT, [2, 3, 4, 4], np.ones(96)))
    nodes = [
        weights,
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[4, 4]),
        helper.make_node("GlobalMaxPool", ["y"], ["z"]),
    ]
    outputs = {"y": (FLOAT, ["n", "Conv_dim_1", "Conv_dim_2", None]), "z": (FLOAT, ["n", "Pool_dim_1", None, "Pool_dim_3"])}
    session = ort.InferenceSession(make(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, outputs))
    assert [one.shape for one in session.get_outputs()] == [["n", 2, "Conv_dim_2", None], ["n", 2, 1, 1]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (TensorProto.DOUBLE, "double"), (TensorProto.FLOAT16, "float16"), (TensorProto.INT8, "int8"), (TensorProto.BOOL, "bool"),
        (TensorProto.INT64, "int64"), (TensorProto.UINT8, "uint8"), (TensorProto.STRING, "string"),
        (TensorProto.BFLOAT16, "bfloat16"),
    ],
)  # fmt: skip
def test_types_read_alike(ort: Any, make: Any, number: int, text: str) -> None:
    session = ort.InferenceSession(make([helper.make_node("Identity", ["x"], ["y"])], {"x": (number, [2])}, {"y": (number, [2])}))
    assert session.get_inputs()[0].type == session.get_outputs()[0].type == f"tensor({text})"


def test_metadata_reads_alike(ort: Any, make: Any) -> None:
    import onnx

    proto = onnx.load_from_string(make([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    proto.doc_string, proto.domain, proto.graph.doc_string, proto.producer_name = "about", "com.acme", "the graph", "me"
    helper.set_model_props(proto, {"names": "{0: 'a'}", "stride": "32"})
    unversioned = ort.InferenceSession(proto.SerializeToString()).get_modelmeta()
    assert unversioned.version == 2**63 - 1
    proto.model_version = 3
    found = ort.InferenceSession(proto.SerializeToString()).get_modelmeta()
    assert found.custom_metadata_map == {"names": "{0: 'a'}", "stride": "32"}
    assert (found.description, found.domain, found.graph_description) == ("about", "com.acme", "the graph")
    assert (found.graph_name, found.producer_name, found.version) == ("g", "me", 3)


def test_runs(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    session = ort.InferenceSession(add, providers=["CPUExecutionProvider"])
    s, t, u = session.run(None, feed)
    np.testing.assert_array_equal(s, feed["x"] + feed["z"])
    np.testing.assert_array_equal(t, feed["y"])
    np.testing.assert_array_equal(u, np.maximum(feed["x"], 0))
    only, again = session.run(["u", "s"], feed)
    np.testing.assert_array_equal(only, u)
    np.testing.assert_array_equal(again, s)
    assert len(session.run([], feed)) == 3


def test_arrays_that_are_stored_strangely(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    session = ort.InferenceSession(add)
    wanted = np.maximum(feed["x"], 0)
    read_only = feed["x"].copy()
    read_only.flags.writeable = False
    strange = [np.asfortranarray(feed["x"]), np.repeat(feed["x"], 2, 1)[:, ::2], read_only]
    for x in strange:
        np.testing.assert_array_equal(session.run(["u"], {**feed, "x": x})[0], wanted)
    np.testing.assert_allclose(session.run(["u"], {**feed, "x": feed["x"].tolist()})[0], wanted)
    np.testing.assert_array_equal(session.run(["u"], {**feed, "x": feed["x"][:0]})[0], wanted[:0])


def test_another_byte_order(add: bytes, feed: dict[str, Any]) -> None:
    """onnxruntime 1.31 reads such bytes as they are."""
    (u,) = dovetail_onnxruntime.InferenceSession(add).run(["u"], {**feed, "x": feed["x"].astype(">f4")})
    np.testing.assert_array_equal(u, np.maximum(feed["x"], 0))


def test_strings_and_scalars(ort: Any, make: Any) -> None:
    nodes = [helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Neg", ["c"], ["d"])]
    content = make(
        nodes,
        {"a": (TensorProto.STRING, [2]), "c": (TensorProto.INT64, [])},
        {"b": (TensorProto.STRING, [2]), "d": (TensorProto.INT64, [])},
    )
    session = ort.InferenceSession(content)
    b, d = session.run(None, {"a": np.array(["x", "yz"]), "c": np.array(3)})
    assert (b.dtype, b.tolist(), d.dtype, d.shape, int(d)) == (np.dtype(object), ["x", "yz"], np.dtype(np.int64), (), -3)


def test_objects_among_strings_are_their_text(ort: Any, make: Any) -> None:
    session = ort.InferenceSession(
        make([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, ["N"])}, {"y": (TensorProto.STRING, ["N"])})
    )
    for given, wanted in (
        (["1", "a"], ["1", "a"]),
        ([1, "a"], ["1", "a"]),
        ([float("nan"), None], ["nan", "None"]),
        ([True, np.str_("é")], ["True", "é"]),
    ):
        (found,) = session.run(None, {"x": np.array(given, object)})
        assert found.tolist() == wanted
        assert {type(text) for text in found} == {str}


def test_one_element_for_an_input_of_rank_0(ort: Any, make: Any) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], ["z"])], name, [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
        )
        for name, operator in (("then", "Neg"), ("else", "Abs"))
    }
    session = ort.InferenceSession(
        make(
            [helper.make_node("If", ["c"], ["y"], **branches)],
            {"c": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, [2])},
            {"y": (TensorProto.FLOAT, [2])},
        )
    )
    x = np.array([1, 2], np.float32)
    for condition in (True, [True], [False], [True]):
        (found,) = session.run(None, {"c": np.array(condition), "x": x})
        np.testing.assert_array_equal(found, -x if np.all(condition) else x)


def test_sequences(ort: Any) -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), helper.make_node("SequenceAt", ["q", "i"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, [2]),
        helper.make_tensor_sequence_value_info("q", FLOAT, None),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_sequence_value_info("s", FLOAT, None), helper.make_tensor_value_info("y", FLOAT, None)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    session = ort.InferenceSession(model.SerializeToString())
    assert [a.type for a in session.get_inputs()] == ["tensor(float)", "seq(tensor(float))", "tensor(int64)"]
    x = np.array([1, 2], np.float32)
    s, y = session.run(None, {"x": x, "q": [x, x + 1], "i": np.array(1)})
    assert [item.tolist() for item in s] == [[1, 2], [1, 2]]
    assert y.tolist() == [2, 3]


def test_free_dimensions(ort: Any, add: bytes) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 4)
    options.add_free_dimension_override_by_name("not there", 4)
    assert ort.InferenceSession(add, options).get_inputs()[1].shape == [4, None]


def test_options_are_kept(ort: Any) -> None:
    options = ort.SessionOptions()
    assert (options.intra_op_num_threads, options.enable_mem_pattern, options.log_severity_level) == (0, True, -1)
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert (options.intra_op_num_threads, options.enable_cpu_mem_arena) == (1, False)
    with pytest.raises(RuntimeError, match="does not have configuration with key: nothing"):
        options.get_session_config_entry("nothing")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        options.intra_op_num_threads = "2"
    with pytest.raises(TypeError, match="incompatible function arguments"):
        options.graph_optimization_level = 2
    with pytest.raises(AttributeError, match="no attribute 'number_of_threads'"):
        options.number_of_threads = 2


def test_profiles(ort: Any, add: bytes, feed: dict[str, Any], tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(add, options)
    session.run(None, feed)
    path = session.end_profiling()
    assert Path(path).name.startswith("profile_")
    assert path.endswith(".json")
    events = json.loads(Path(path).read_text())
    (run,) = (event for event in events if event["name"] == "model_run")
    nodes = [event for event in events if event["cat"] == "Node"]
    assert nodes
    assert {event["args"]["op_name"] for event in nodes} <= {"Add", "Identity", "Relu"}
    for event in nodes:
        assert event["name"].endswith("_kernel_time")
        assert run["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1
        assert {"op_name", "provider"} <= set(event["args"])


def test_bindings(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    session = ort.InferenceSession(add)
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: nope"):
        binding.bind_cpu_input("nope", feed["x"])
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", feed["x"])
    binding.bind_ortvalue_input("y", ort.OrtValue.ortvalue_from_numpy(feed["y"]))
    binding.bind_input("z", "cpu", 0, np.float32, feed["z"].shape, feed["z"].ctypes.data)
    target = np.zeros((2, 3), np.float32)
    binding.bind_output("u", "cpu", 0, np.float32, (2, 3), target.ctypes.data)
    binding.bind_output("s")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(target, np.maximum(feed["x"], 0))
    u, s = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(u, target)
    np.testing.assert_array_equal(s, feed["x"] + feed["z"])
    assert [value.shape() for value in binding.get_outputs()] == [[2, 3], [2, 3]]
    binding.clear_binding_outputs()
    place = ort.OrtValue.ortvalue_from_shape_and_type([5, 7], np.float32)
    binding.bind_ortvalue_output("t", place)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(place.numpy(), feed["y"])
    binding.clear_binding_inputs()
    with pytest.raises(ValueError, match="session that created it"):
        ort.InferenceSession(add).run_with_iobinding(binding)


def test_copies_of_outputs_in_bound_memory_stay_as_they_are(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    session = ort.InferenceSession(add)
    binding = session.io_binding()
    binding.bind_ortvalue_output("u", ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32))
    copies = []
    for factor in (1, 2):
        for name, array in feed.items():
            binding.bind_cpu_input(name, factor * array)
        session.run_with_iobinding(binding)
        copies += binding.copy_outputs_to_cpu()
    for copy, factor in zip(copies, (1, 2), strict=True):
        np.testing.assert_array_equal(copy, factor * np.maximum(feed["x"], 0))


def test_an_output_in_memory_that_is_read_only(add: bytes, feed: dict[str, Any]) -> None:
    """onnxruntime writes to it."""
    session = dovetail_onnxruntime.InferenceSession(add)
    binding, place = session.io_binding(), np.zeros((2, 3), np.float32)
    place.flags.writeable = False
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("u", dovetail_onnxruntime.OrtValue.ortvalue_from_numpy(place))
    with pytest.raises(RuntimeError, match="output 'u' is bound to an array that is read-only"):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(place, 0)


def test_outputs_that_a_device_keeps_are_inputs_of_the_next_run(add: bytes, feed: dict[str, Any]) -> None:
    session = dovetail_onnxruntime.InferenceSession(add)
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("s", "cuda")
    binding.bind_output("u", "cpu")
    session.run_with_iobinding(binding)
    s, u = binding.get_outputs()
    want = feed["x"] + feed["z"]
    assert isinstance(s._value, DeviceArray)
    assert isinstance(u._value, np.ndarray)
    assert (s.shape(), s.data_type(), s.element_type(), s.tensor_size_in_bytes()) == ([2, 3], "tensor(float)", FLOAT, 24)
    np.testing.assert_array_equal(s.numpy(), want)
    binding.bind_ortvalue_input("x", s)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(s.numpy(), want)
    for got, expected in zip(binding.copy_outputs_to_cpu(), (want + feed["z"], np.maximum(want, 0)), strict=True):
        np.testing.assert_array_equal(got, expected)
    s.update_inplace(want * 2)  # from now on in the host's memory
    np.testing.assert_array_equal(np.from_dlpack(s), want * 2)


def test_values(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(feed["x"])
    assert (value.data_type(), value.shape(), value.element_type(), value.device_name()) == (
        "tensor(float)",
        [2, 3],
        FLOAT,
        "cpu",
    )
    assert (value.is_tensor(), value.has_value(), value.is_tensor_sequence(), value.is_sparse_tensor()) == (
        True,
        True,
        False,
        False,
    )
    assert value.data_ptr() == feed["x"].ctypes.data
    value.update_inplace(feed["x"] + 1)
    np.testing.assert_array_equal(value.numpy(), feed["x"])  # the memory is shared
    with pytest.raises(RuntimeError, match="does not match the size"):
        value.update_inplace(feed["y"])
    assert ort.OrtValue.ortvalue_from_shape_and_type([2, 0], TensorProto.INT64).data_type() == "tensor(int64)"
    (u,) = ort.InferenceSession(add).run_with_ort_values(
        ["u"], {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    )
    np.testing.assert_array_equal(u.numpy(), np.maximum(feed["x"], 0))


def test_dlpack(ort: Any, feed: dict[str, Any]) -> None:
    value = ort.OrtValue.from_dlpack(feed["x"])
    assert np.from_dlpack(value).ctypes.data == feed["x"].ctypes.data
    np.testing.assert_array_equal(np.asarray(value), feed["x"])
    assert value.__dlpack_device__() == (1, 0)


def test_asynchronous_runs(ort: Any, add: bytes, feed: dict[str, Any]) -> None:
    done, found = threading.Event(), []

    def callback(outputs: Any, data: Any, error: str) -> None:
        found.append((outputs, data, error))
        done.set()

    session = ort.InferenceSession(add)
    session.run_async(["u"], feed, callback, "mine")
    assert done.wait(60)
    ((outputs, data, error),) = found
    np.testing.assert_array_equal(outputs[0], np.maximum(feed["x"], 0))
    assert (data, error) == ("mine", "")


def test_threads_share_a_session(ort: Any, add: bytes) -> None:
    session = ort.InferenceSession(add)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((1 + number, 3), number, np.float32)
        for _ in range(20):
            (s,) = session.run(["s"], {"x": x, "y": x, "z": x[:1]})
            if not np.array_equal(s, x + x[:1]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_subclass_that_pickles_by_path(ort: Any, add: bytes, feed: dict[str, Any], tmp_path: Path) -> None:
    """The wrapper of insightface, whose state is the path."""
    path = tmp_path / "model.onnx"
    path.write_bytes(add)

    class Wrapper(ort.InferenceSession):  # type: ignore[misc]  # the base is a fixture
        def __init__(self, model_path: str, **kwargs: Any) -> None:
            super().__init__(model_path, **kwargs)
            self.model_path = model_path

        def __getstate__(self) -> dict[str, Any]:
            return {"model_path": self.model_path}

        def __setstate__(self, values: dict[str, Any]) -> None:
            self.__init__(values["model_path"])  # type: ignore[misc]  # as insightface does

    session = Wrapper(str(path), providers=["CPUExecutionProvider"])
    assert isinstance(session, ort.InferenceSession)
    copy = Wrapper.__new__(Wrapper)
    copy.__setstate__(session.__getstate__())
    np.testing.assert_array_equal(copy.run(["u"], feed)[0], np.maximum(feed["x"], 0))


def test_sessions_pickle_as_what_they_were_made_from(add: bytes, feed: dict[str, Any]) -> None:
    options = dovetail_onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = dovetail_onnxruntime.InferenceSession(add, options, providers=[("DovetailExecutionProvider", {"device": "NUMPY"})])
    copy = pickle.loads(pickle.dumps(session))
    assert copy.dovetail_device == "NUMPY"
    assert copy.get_session_options().intra_op_num_threads == 1
    np.testing.assert_array_equal(copy.run(["u"], feed)[0], np.maximum(feed["x"], 0))


def test_maps_have_plain_numbers() -> None:
    made = [{"a": 1.0, "b": 2.0}, {"a": 0.5}]
    assert result(made) is made
    given = [{1: np.float32(0.5), 2: 2.0}, {}]
    found = result(given)
    assert found == [{1: 0.5, 2: 2.0}, {}]
    assert {type(value) for one in found for value in one.values()} == {float}
    nested = result([[np.zeros(2)], {3: np.int64(4)}])
    assert type(nested[1][3]) is int
    assert result([]) == []
