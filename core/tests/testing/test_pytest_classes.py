"""The classes that packages subclass, run by pytest as a package would run them."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")


def run_pytest(folder: Path, source: str, *options: str) -> tuple[int, dict[str, int], str]:
    """Exit code, outcome -> how many, and everything printed, of a test file beside the toy device's module."""
    (folder / "toys.py").write_text(CONFTEST.read_text())
    (folder / "test_conformance.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    done = subprocess.run([*command, str(folder)], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|xfailed|error)", done.stdout)}
    return done.returncode, counts, done.stdout + done.stderr


DEVICE = """
    from dovetail.testing import DeviceConformance
    from toys import make_core, everything

    class TestToy(DeviceConformance):
        device = "TOY"
        expected_failures = {expected}

        @classmethod
        def core(cls):
            return make_core(everything, {faults})
"""


def test_a_whole_suite_in_three_lines(tmp_path: Path) -> None:
    """Of the operators' cases a few: test_device_checks.py runs a sample of them."""
    code, counts, printed = run_pytest(tmp_path, DEVICE.format(expected={}, faults=[]), "-k", "not test_operators or sub or sqrt")
    assert code == 0, printed
    assert set(counts) == {"passed"}
    assert counts["passed"] > 100


def test_a_single_check_by_its_name(tmp_path: Path) -> None:
    code, counts, printed = run_pytest(tmp_path, DEVICE.format(expected={}, faults=["wrong_add"]), "-k", "add-equal_shapes")
    assert (code, counts) == (1, {"failed": 1}), printed
    assert "test_operators[add-equal_shapes]" in printed


def test_known_gaps_are_strict(tmp_path: Path) -> None:
    known = {"add-equal_shapes": "adds one", "abs-odd_size": "has been fixed"}
    code, counts, printed = run_pytest(
        tmp_path, DEVICE.format(expected=known, faults=["wrong_add"]), "-k", "add-equal_shapes or abs-odd_size", "-rxX"
    )
    assert (code, counts) == (1, {"xfailed": 1, "failed": 1}), printed
    assert "[XPASS(strict)] has been fixed" in printed


def test_known_gaps_that_are_none(tmp_path: Path) -> None:
    wrong = {"Did you mean 'add-equal_shapes'": {"ad-equal_shapes": "x"}, "gives no reason": {"add-equal_shapes": " "}}
    classes = [DEVICE.format(expected=known, faults=[]).replace("Toy(", f"Toy{i}(") for i, known in enumerate(wrong.values())]
    code, counts, printed = run_pytest(tmp_path, "".join(classes), "--collect-only")
    assert (code, counts["error"]) == (2, 2), printed
    assert all(message in printed for message in wrong)


PACK = """
    from types import SimpleNamespace
    import numpy as np
    import dovetail
    from dovetail.op import FLOATS, Operator
    from dovetail.testing import Case, FrontendConformance, OpPackConformance
    from toys import make_core

    class Twice(Operator):
        "y = 2 x."
        domain = "com.acme"
        inputs = ("X: T",)
        outputs = ("Y: T",)
        types = {"T": FLOATS}

        def reference(self, X):
            return X + X

        @classmethod
        def cases(cls, rng):
            x = rng.standard_normal((2, 3)).astype(np.float32)
            yield Case("float32", cls(), (x,), (np.float32(2) * x,))

    @dovetail.hookimpl
    def register(registry):
        registry.add(Twice)

    @dovetail.hookimpl
    def read(source):
        raise dovetail.errors.FormatError(f"{getattr(source, 'name', 'bytes')}: not acme")

    def core_with(kind, key, **hooks):
        core = make_core()
        core.plugins.register(SimpleNamespace(dovetail_api="1.0", **hooks), name="acme", kind=kind, key=key)
        return core

    class TestPack(OpPackConformance):
        domain = "com.acme"

        @classmethod
        def core(cls):
            return core_with("ops", "com.acme", dovetail_register_ops=register)

    class TestReader(FrontendConformance):
        format = "acme"
        expected_failures = {"unknown_option": "it takes any"}

        @classmethod
        def core(cls):
            return core_with("frontends", "acme", dovetail_read_model=read)
"""


def test_packs_and_frontends(tmp_path: Path) -> None:
    code, counts, printed = run_pytest(tmp_path, PACK, "-rA")
    assert code == 0, printed
    assert counts["xfailed"] == 1
    for name in ("test_operators[twice-definition]", "test_cases[twice-float32]", "test_devices[twice-float32-TOY]"):
        assert f"PASSED test_conformance.py::TestPack::{name}\n" in printed
    assert "PASSED test_conformance.py::TestReader::test_malformed[png-file]\n" in printed


def test_the_kit_is_no_pytest_plugin_and_needs_no_pytest(tmp_path: Path) -> None:
    code = """
        import sys
        from importlib.metadata import entry_points
        import dovetail.testing
        from dovetail.testing import DeviceConformance, OpPackConformance, FrontendConformance
        print([m for m in ("pytest", "hypothesis") if m in sys.modules])
        print([e.name for e in entry_points(group="pytest11") if e.value.startswith("dovetail")])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_case_alone_imports_no_runtime() -> None:
    code = "import sys; from dovetail.testing import Case; print([m for m in sys.modules if m.startswith('dovetail.runtime')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
