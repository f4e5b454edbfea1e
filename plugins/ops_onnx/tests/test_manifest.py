"""The manifest, by which the operators are counted without an import, lists what the pack registers."""

from dovetail.plugins import PluginManager, check_manifest


def test_manifest_is_there_and_up_to_date() -> None:
    record = PluginManager(config=False).load("dovetail-ops-onnx/ops/ai.onnx")
    assert (record.state, record.reason) == ("loaded", "")
    assert check_manifest(record) == []
    assert {"Conv-1", "Relu-1", "Softmax-13"} <= set(record.provides)
