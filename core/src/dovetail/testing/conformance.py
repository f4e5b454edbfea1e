"""The kit as pytest classes: subclass one in a package's tests, and name the device, domain or suffix."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.errors import UsageError, did_you_mean
from dovetail.operators.operator import Operator
from dovetail.plugins.records import normalized
from dovetail.runtime import Core
from dovetail.testing.check import Check
from dovetail.testing.devices import DeviceChecks
from dovetail.testing.frontends import FrontendChecks
from dovetail.testing.kit import Kit
from dovetail.testing.packs import OpPackChecks

if TYPE_CHECKING:
    import pytest

__all__ = ["DeviceConformance", "FrontendConformance", "OpPackConformance"]


class _Conformance(ABC):
    """Shared by the classes: each method `test_<group>` runs as one test for each check of its group."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Name of a check (as in the test's id) -> why it fails. A check that passes all the same fails the suite."""
    seed: ClassVar[int] = 7
    """Of the random inputs."""

    _kit: ClassVar[Any]

    @classmethod
    def core(cls) -> Core:
        """The session in which the plugin is found. Override it for a session with a configuration of its own."""
        return Core()

    @classmethod
    @abstractmethod
    def _make_kit(cls) -> Kit: ...

    @classmethod
    def _own_kit(cls) -> Kit:
        # One kit for each class, made when the first of its tests is collected.
        if "_kit" not in vars(cls):
            cls._kit = cls._make_kit()
            _check_expected(cls)
        kit: Kit = cls._kit
        return kit

    def pytest_generate_tests(self, metafunc: "pytest.Metafunc") -> None:
        """Make a test of each check. pytest calls this for classes that have it."""
        import pytest

        group = metafunc.function.__name__.removeprefix("test_")
        known = self.expected_failures
        parameters = [
            pytest.param(
                check,
                id=check.name,
                marks=[pytest.mark.xfail(reason=known[check.name], strict=True)] if check.name in known else [],
            )
            for check in self._own_kit().checks
            if check.group == group
        ]
        if "check" in metafunc.fixturenames:
            metafunc.parametrize("check", parameters)

    @classmethod
    def teardown_class(cls) -> None:
        """Close the session."""
        cls._own_kit().close()


def _check_expected(cls: type[_Conformance]) -> None:
    names = {check.name for check in cls._kit.checks}
    for name, reason in cls.expected_failures.items():
        if name not in names:
            raise UsageError(f"{cls.__name__}.expected_failures names no check: {name!r}", hint=did_you_mean(name, names))
        if not reason.strip():
            raise UsageError(f"{cls.__name__}.expected_failures gives no reason for {name!r}")


class DeviceConformance(_Conformance):
    """A device against everything it claims::

        class TestConformance(DeviceConformance):
            device = "ACME"

    Every case of every standard operator: what the device accepts must be right, what it does not must be refused with a
    `Reason` and a detail. Also: each data type bit by bit, awkward shapes, memory, requests in threads, random graphs.
    If the device is not available, every test fails with the stored cause.
    """

    device: ClassVar[str]
    """The name or type of the device."""

    @classmethod
    def _make_kit(cls) -> Kit:
        return DeviceChecks(cls.device, cls.core, cls.seed)

    def test_operators(self, check: Check) -> None:
        """A case of a standard operator."""
        check()

    def test_data_types(self, check: Check) -> None:
        """Every bit pattern of a data type goes in and comes out."""
        check()

    def test_shapes(self, check: Check) -> None:
        """Scalars, empty tensors, many dimensions."""
        check()

    def test_memory(self, check: Check) -> None:
        """Inputs are only read, wherever they are; outputs are the caller's."""
        check()

    def test_requests(self, check: Check) -> None:
        """Runs repeat, requests are independent, the device can be opened again."""
        check()

    def test_graphs(self, check: Check) -> None:
        """Random graphs of what the device claims, with and without fusion, against float64."""
        check()


class OpPackConformance(_Conformance):
    """The operators of a domain against their own definitions and cases::

        class TestPack(OpPackConformance):
            domain = "com.acme"

    The cases are those that each class yields from its classmethod `cases(rng)`.
    """

    domain: ClassVar[str]
    """The domain, as the entry point names it."""
    package: ClassVar[str] = ""
    """The distribution to prefer, whose operators alone are checked: for an override. "" checks all of the domain."""

    @classmethod
    def core(cls) -> Core:
        """The session in which the pack is found, and preferred where `package` names it."""
        return Core(prefer=(cls.package,) if cls.package else ())

    @classmethod
    def _make_kit(cls) -> Kit:
        def provided(core: Core, operator: type[Operator]) -> bool:
            return not cls.package or core.plugins.provider(operator).partition(" ")[0] == normalized(cls.package)

        return OpPackChecks(cls.domain, cls.core, cls.seed, provided)

    def test_operators(self, check: Check) -> None:
        """The class is well-formed, has cases, and its kernels run."""
        check()

    def test_cases(self, check: Check) -> None:
        """Inference, reference and composition give what the case expects."""
        check()

    def test_devices(self, check: Check) -> None:
        """Every available device gives what the case expects."""
        check()


class FrontendConformance(_Conformance):
    """A frontend against malformed input::

        class TestReader(FrontendConformance):
            format = "acme"

    What well-formed files mean, the frontend's own tests have to show.
    """

    format: ClassVar[str]
    """The file suffix, without the dot."""

    @classmethod
    def _make_kit(cls) -> Kit:
        return FrontendChecks(cls.format, cls.core, cls.seed)

    def test_malformed(self, check: Check) -> None:
        """Content that is not a model raises `FormatError` or `GraphError`."""
        check()

    def test_files(self, check: Check) -> None:
        """Paths that are not a file, and unknown options."""
        check()
