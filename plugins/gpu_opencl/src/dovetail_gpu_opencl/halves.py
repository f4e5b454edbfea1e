"""Whether a kernel's source only loads and stores float16, by `vload_half` and `vstore_half`, which need no extension."""

import re
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["only_loads_and_stores"]

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMPUTES = re.compile(r"\bhalf\d+\b|\bcl_khr_fp16\b")
_POINTER = re.compile(r"\bhalf(?: |\t|\n|const\b|volatile\b)*\*(?: |\t|\n|const\b|volatile\b|restrict\b|__restrict\b)*(\w+)")


def only_loads_and_stores(source: str) -> bool:
    """True when every `half` of the source is pointed to, and its function has no such pointer before `[` or behind `*`.

    Sources that hide `half` in a macro are taken to compute with it.
    """
    text = _COMMENTS.sub(" ", source)
    names = _POINTER.findall(text)
    if not names or _COMPUTES.search(text) or len(names) != len(re.findall(r"\bhalf\b", text)):
        return False
    return not any(map(_reads_a_half, _functions(text)))


def _reads_a_half(function: str) -> bool:
    body = _POINTER.sub(" ", function)
    return any(re.search(rf"\b{name}\s*\[|\*\s*{name}\b", body) for name in _POINTER.findall(function))


def _functions(text: str) -> Iterator[str]:
    """The source up to the end of each function, from the one before: kernels for several data types name arguments alike.

    All of it at once where braces do not pair up, as in branches of the preprocessor.
    """
    depth, ends = 0, [0]
    for brace in re.finditer("[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            break
        if depth == 0:
            ends.append(brace.end())
    yield from (text[a:b] for a, b in pairwise((*ends, len(text)))) if depth == 0 else (text,)
