"""The manifest, by which the pack's operators are counted without importing it, lists what the pack registers."""

from dovetail.plugins import PluginManager, check_manifest
from dovetail.plugins.manifest import read_manifest


def test_manifest_is_there_and_up_to_date() -> None:
    record = PluginManager(config=False).load("dovetail-ops-tim-vx")
    assert record.state == "loaded", record.reason
    assert check_manifest(record) == []
    assert read_manifest(record) == record.provides
    assert "tim.vx::HSwish-1" in record.provides
