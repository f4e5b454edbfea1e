"""Whether a kernel's source only loads and stores float16, by `vload_half` and `vstore_half`, which need no extension."""

import re

__all__ = ["only_loads_and_stores"]

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMPUTES = re.compile(r"\bhalf\d+\b|\bcl_khr_fp16\b")
_POINTER = re.compile(r"\bhalf(?: |\t|\n|const\b|volatile\b)*\*(?: |\t|\n|const\b|volatile\b|restrict\b|__restrict\b)*(\w+)")


def only_loads_and_stores(source: str) -> bool:
    """True when every `half` of the source is pointed to, and no such pointer is followed by `[` or preceded by `*`.

    Sources that hide `half` in a macro are taken to compute with it.
    """
    text = _COMMENTS.sub(" ", source)
    names = _POINTER.findall(text)
    if not names or _COMPUTES.search(text) or len(names) != len(re.findall(r"\bhalf\b", text)):
        return False
    body = _POINTER.sub(" ", text)
    return not any(re.search(rf"\b{name}\s*\[|\*\s*{name}\b", body) for name in names)
