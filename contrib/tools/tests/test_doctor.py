"""The doctor's line about slow imports, and checks that cannot be made; core/tests/plugins has the tests of the whole command."""

import subprocess
import sys

from dovetail_tools import doctor


def test_a_slow_import_without_a_slow_module() -> None:
    """The modules of a plugin may be fast one by one."""
    found = doctor.Diagnosis("acme/ops/acme", "acme", "1.0", {"import_seconds": 5.01})
    doctor._take_imports(found, "import time:        10 |         20 | acme\n")
    (finding,) = found.findings
    assert finding["reason"] == "importing it takes 5.01 s: no module in particular"


def test_without_the_package_of_narrow_types_a_device_is_not_checked() -> None:
    """NUMPY does not need the package; the cases of some operators do."""
    script = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "from dovetail_tools.health import examine\n"
        "examine('dovetail-cpu-numpy/devices/numpy', print)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "'level': 'WARN', 'reason': 'not checked: data type" in done.stdout
    assert "'hint': 'pip install ml_dtypes'" in done.stdout
    assert "FAIL" not in done.stdout
