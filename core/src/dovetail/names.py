"""Names: operator types as file stems, and names from files in messages."""

import functools
import keyword
from collections.abc import Callable, Iterable, MutableMapping

DEFAULT_DEVICE = "DEFAULT"
"""The device where none is named: the virtual device of the entry `default`; without one, the best of all devices."""

PLAN_SUFFIX = ".plans"
"""The suffix of files of compiled models for commands, which `Core.import_model` reads under any name."""


def free_name(base: str, is_taken: Callable[[str], bool], counts: MutableMapping[str, int] | None = None) -> str:
    """`base`, or the first of `base_1`, `base_2`, ... that is not taken.

    `counts` keeps the last number of each base, so that many equal names do not take quadratic time.
    """
    name, number = base, (counts or {}).get(base, 0)
    while is_taken(name):
        number += 1
        name = f"{base}_{number}"
    if counts is not None and name != base:
        counts[base] = number
    return name


def unique_name(base: str, taken: set[str], counts: MutableMapping[str, int] | None = None) -> str:
    """The `free_name` that is not in `taken`; it is in `taken` afterwards."""
    name = free_name(base, taken.__contains__, counts)
    taken.add(name)
    return name


@functools.cache
def stem_of(op_type: str) -> str:
    """`BatchNormalization` -> `batch_normalization`, `LSTM` -> `lstm`, `IsNaN` -> `is_nan`, `And` -> `and_` (a keyword)."""
    name = op_type.replace("NaN", "Nan")
    # Not a pattern: it would be the first of its process, and compiling that takes 0.2 ms.
    stem = "".join([f"_{letter}" if _begins_word(name, place) else letter for place, letter in enumerate(name)]).lower()
    return f"{stem}_" if keyword.iskeyword(stem) else stem


def _begins_word(name: str, place: int) -> bool:
    """Whether a capital letter follows a small one or a digit, or another capital and precedes a small one."""
    before, letter, after = name[max(place - 1, 0) : place], name[place], name[place + 1 : place + 2]
    if not (before and "A" <= letter <= "Z"):
        return False
    return "a" <= before <= "z" or "0" <= before <= "9" or ("A" <= before <= "Z" and "a" <= after <= "z")


def operator_key(domain: str, op_type: str) -> str:
    """`Conv`, or `com.acme::Conv` outside the standard domain `""`."""
    return f"{domain}::{op_type}" if domain else op_type


def some(names: Iterable[str], limit: int = 4) -> str:
    """The first names, for use in a message: `a, b and 7 more`. Each is `printable`."""
    known = list(names)
    # Of one more than the limit the name is as short as the number.
    shown = known if len(known) <= limit + 1 else known[:limit]
    more = f" and {len(known) - len(shown)} more" if len(shown) < len(known) else ""
    return ", ".join(printable(name) for name in shown) + more


def visible(text: str, kept: str = "") -> str:
    """`text` with control, direction-changing and other unprintable characters as escapes, but for those in `kept`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def _escape(char: str) -> str:
    import unicodedata  # here, because few names need it

    return " " if unicodedata.category(char) == "Zs" else char.encode("unicode_escape").decode()


def shortened(text: str, limit: int) -> str:
    """`text`, or its beginning and how long the whole is."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def printable(text: str | bytes, limit: int = 100) -> str:
    """`text` from a file for use in a message: control and other unprintable characters escaped, long text shortened.

    Example: `printable("a\\x1b[31m")` -> `"a\\\\x1b[31m"`.
    """
    decoded = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    return decoded if len(decoded) <= limit and decoded.isprintable() else visible(shortened(decoded, limit))
