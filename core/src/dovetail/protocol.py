"""`Protocol` as type checkers know it. At run time it is an empty class, as the library's makes each protocol take 0.1 ms."""

from typing import TYPE_CHECKING

__all__ = ["Protocol"]

if TYPE_CHECKING:
    from typing import Protocol
else:

    class Protocol:
        """Base of protocols."""
