"""Execution providers: names, options, devices of dovetail, and what has no effect."""

import logging
from typing import Any

import numpy as np
import pytest

import dovetail_onnxruntime as ort
from dovetail_onnxruntime import providers

CPU, OWN = "CPUExecutionProvider", "DovetailExecutionProvider"


@pytest.fixture(autouse=True)
def no_device_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_ONNXRUNTIME_DEVICE", raising=False)


def test_the_cpu_is_always_there() -> None:
    assert ort.get_available_providers()[-2:] == [OWN, CPU]
    assert set(ort.get_available_providers()) <= set(ort.get_all_providers())
    assert ort.get_device() in ("CPU", "GPU")


def test_providers_of_both_runtimes(add: bytes) -> None:
    import onnxruntime as theirs

    for given in (None, [], [CPU], [(CPU, {})]):
        wanted, found = (runtime.InferenceSession(add, providers=given) for runtime in (theirs, ort))
        assert found.get_providers() == wanted.get_providers() == [CPU]
        assert found._providers == wanted._providers == [CPU]  # private names, which insightface reads
        assert found._provider_options == wanted._provider_options == {CPU: {}}


def test_only_providers_of_gpus_look_for_gpus(add: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for them loads the drivers of OpenCL: 80 MB for two of them."""
    looked: list[str] = []
    monkeypatch.setattr(providers, "_has_gpu", lambda: bool(looked.append("")))
    for given in ([], [CPU], [(OWN, {"device": "NUMPY"})]):
        ort.InferenceSession(add, providers=given)
    assert not looked
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        ort.InferenceSession(add, providers=["CUDAExecutionProvider"])
    assert looked


def test_a_provider_that_is_not_there_is_warned_of(add: bytes) -> None:
    with pytest.warns(UserWarning, match="'QNNExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(add, providers=["QNNExecutionProvider", CPU])
    assert session.get_providers() == [CPU]


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        ([1], None, "either strings or"),
        ([CPU], [{}, {}], "same length"),
        ([(CPU, {})], [{}], "Only string values"),
        (5, None, "should be a sequence"),
    ],
)
def test_malformed_providers(add: bytes, providers: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ort.InferenceSession(add, providers=providers, provider_options=options, enable_fallback=0)
    assert ort.InferenceSession(add, providers=providers, provider_options=options).get_providers() == [CPU]


def test_the_device_of_dovetail_by_options(add: bytes) -> None:
    providers = [(OWN, {"device": "NUMPY", "PLAN_CACHE": 2}), CPU]
    session = ort.InferenceSession(add, providers=providers)
    assert session.dovetail_device == "NUMPY"
    assert session.get_providers() == [OWN, CPU]
    assert session.get_provider_options() == {OWN: {"device": "NUMPY", "PLAN_CACHE": "2"}, CPU: {}}
    session.set_providers([CPU])
    assert session.get_providers() == [CPU]


def test_the_device_for_every_provider(add: bytes, feed: dict[str, Any]) -> None:
    ort.use_device("NUMPY")
    session = ort.InferenceSession(add, providers=[CPU])
    assert session.dovetail_device == "NUMPY"
    np.testing.assert_array_equal(session.run(["u"], feed)[0], np.maximum(feed["x"], 0))
    ort.use_device(None)
    assert "DOVETAIL_ONNXRUNTIME_DEVICE" not in __import__("os").environ


def test_a_device_that_is_not_there(add: bytes) -> None:
    state = __import__("dovetail_onnxruntime.capi.onnxruntime_pybind11_state", fromlist=["Fail"])
    for fallback in (0, 1):
        with pytest.raises(state.Fail, match="NOSUCH"):
            ort.InferenceSession(add, providers=[(OWN, {"device": "NOSUCH"})], enable_fallback=fallback)


def test_fallbacks_are_logged_with_their_cause(
    add: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_onnxruntime.noted._noted", set())
    with monkeypatch.context() as patch:
        patch.setattr("dovetail_onnxruntime.session.device_of", lambda providers: ("NOSUCH", {}))
        assert ort.InferenceSession(add, providers=[OWN]).get_providers() == [CPU]
    ort.InferenceSession(add, providers=5)
    told = [r.getMessage() for r in caplog.records if r.name == "dovetail.onnxruntime"]
    assert "NOSUCH failed, the CPU is used: " in told[0]
    assert "NOSUCH" in told[0].partition("used: ")[2]
    assert "'providers' should be a sequence" in told[1]


def test_options_without_effect_are_named_once(add: bytes, caplog: pytest.LogCaptureFixture) -> None:
    options = ort.SessionOptions()
    options.inter_op_num_threads = 2
    options.add_session_config_entry("session.dynamic_block_base", "4")
    for _ in range(2):
        ort.InferenceSession(add, options, providers=[(CPU, {"arena_extend_strategy": "kSameAsRequested"})])
    told = [r.getMessage() for r in caplog.records if r.name == "dovetail.onnxruntime"]
    assert sorted(told) == [
        "onnxruntime's SessionOptions.inter_op_num_threads has no effect on dovetail",
        "onnxruntime's option 'arena_extend_strategy' of CPUExecutionProvider has no effect on dovetail",
        "onnxruntime's session configuration entry 'session.dynamic_block_base' has no effect on dovetail",
    ]


def test_defaults_are_silent(add: bytes, feed: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ort.InferenceSession(add, ort.SessionOptions()).run(None, feed)
    assert not caplog.records


def test_the_optimization_level_leaves_recognisers_out(add: bytes, feed: dict[str, Any]) -> None:
    def passes(level: ort.GraphOptimizationLevel) -> set[str]:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(add, options)
        session.run(None, feed)
        return {one.name for one in session._compiled.report().passes}

    everything, few = (passes(getattr(ort.GraphOptimizationLevel, f"ORT_{name}_ALL")) for name in ("ENABLE", "DISABLE"))
    left_out = everything - few
    assert "fuse_attention" in left_out
    assert few


def test_threads_become_a_property(add: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    core = __import__("dovetail_onnxruntime.providers", fromlist=["core"]).core()
    compile_model = core.compile_model

    def spy(model: Any, device: str, properties: Any) -> Any:
        asked.append(dict(properties))
        return compile_model(model, device, properties)

    monkeypatch.setattr(core, "compile_model", spy)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    ort.InferenceSession(add, options, providers=[(OWN, {"device": "NUMPY"})])
    assert asked == [{"INFERENCE_NUM_THREADS": 1}, {}]  # NUMPY takes no number of threads


def test_providers_of_the_options(add: bytes, feed: dict[str, Any]) -> None:
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider(OWN, {"device": "NUMPY"})
    assert options.has_providers()
    session = ort.InferenceSession(add, options)
    assert (session.get_providers(), session.dovetail_device) == ([OWN, CPU], "NUMPY")
    with pytest.warns(UserWarning, match="SessionOptions has already been configured with providers"):
        assert ort.InferenceSession(add, options, providers=[CPU]).get_providers() == [CPU]
    with pytest.raises(RuntimeError, match="Unknown Provider Type: NoExecutionProvider"):
        options.add_provider("NoExecutionProvider", {})
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="provider of type 'QNNExecutionProvider'"):
        options.add_provider("QNNExecutionProvider", {})


def test_devices_and_policies(add: bytes) -> None:
    import onnxruntime as theirs

    (cpu,) = (device for device in ort.get_ep_devices() if device.device.type == ort.OrtHardwareDeviceType.CPU)
    (wanted,) = (device for device in theirs.get_ep_devices() if device.ep_name == CPU)
    assert (cpu.ep_name, cpu.ep_metadata) == (wanted.ep_name, {"version": ort.__version__})
    options = ort.SessionOptions()
    options.add_provider_for_devices([cpu, cpu], {})
    session = ort.InferenceSession(add, options)
    assert session.get_providers() == [CPU]
    assert session.get_input_epdevices() == [cpu] * len(session.get_inputs())
    other = ort.OrtEpDevice(OWN, cpu.device)
    for devices in ([], [cpu, other]):
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
            options.add_provider_for_devices(devices, {})
    gpus = [name for name in ort.get_available_providers() if name not in (OWN, CPU)]
    for policy in ort.OrtExecutionProviderDevicePolicy:
        options = ort.SessionOptions()
        options.set_provider_selection_policy(policy)
        assert options.has_providers()
        fast = policy.name in ("PREFER_GPU", "MAX_PERFORMANCE")
        assert ort.InferenceSession(add, options).get_providers() == [*(gpus if fast else []), CPU]
        assert policy == int(theirs.OrtExecutionProviderDevicePolicy.__members__[policy.name])


def test_a_load_that_is_cancelled(add: bytes) -> None:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.ModelLoadCanceled):
        ort.InferenceSession(add, options)
    options.set_load_cancellation_flag(False)
    assert ort.InferenceSession(add, options).get_providers() == [CPU]
