"""Shared by the checks of devices, packs and frontends: a session, a seed, and the checks themselves."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from dovetail.locks import cached_property
from dovetail.runtime import Core
from dovetail.testing.check import Check

__all__ = ["Kit"]


class Kit(ABC):
    """The checks of one subject. `make_core` gives the session, which is opened on first use; `seed` the random inputs."""

    def __init__(self, make_core: Callable[[], Core], seed: int) -> None:
        self._make_core = make_core
        self._seed = seed

    @cached_property
    def core(self) -> Core:
        """The session of all checks."""
        return self._make_core()

    def open(self) -> None:
        """Open what all checks need. Raises what would make every one of them fail."""
        self.core  # noqa: B018  # made on first use

    @cached_property
    @abstractmethod
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order."""

    def close(self) -> None:
        """Close the session; a check that runs later opens another."""
        if "core" in self.__dict__:
            self.core.close()
            del self.core
