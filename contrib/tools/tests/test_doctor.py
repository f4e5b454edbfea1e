"""The doctor's line about slow imports; core/tests/plugins has the tests of the whole command."""

from dovetail_tools import doctor


def test_a_slow_import_without_a_slow_module() -> None:
    """The modules of a plugin may be fast one by one."""
    found = doctor.Diagnosis("acme/ops/acme", "acme", "1.0", {"import_seconds": 5.01})
    doctor._take_imports(found, "import time:        10 |         20 | acme\n")
    (finding,) = found.findings
    assert finding["reason"] == "importing it takes 5.01 s: no module in particular"
