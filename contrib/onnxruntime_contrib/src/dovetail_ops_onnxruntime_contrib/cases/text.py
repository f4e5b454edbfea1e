"""Cases of Tokenizer by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.text import Tokenizer


def tokenizer(rng: np.random.Generator) -> Iterator[Case]:
    """Words, what is between separators, characters, marks, short tokens, no tokens."""

    def case(name: str, want: list[list[str]], mark: int = 0, mincharnum: int = 1, **attributes: Any) -> Case:
        op = Tokenizer(mark=mark, mincharnum=mincharnum, pad_value="#", **attributes)
        texts = np.array(["ab, d\u00e9 c", "", "c"], object)
        return Case(name, op, (texts,), (np.array(want, object).reshape(3, -1),))

    yield case("words", [["ab", "dé", "c"], ["#"] * 3, ["c", "#", "#"]], tokenexp=r"[a-zé]+")
    yield case("long_words", [["ab", "dé"], ["#"] * 2, ["#"] * 2], tokenexp=r"[a-zé]+", mincharnum=2)
    yield case("longest", [["ab", "c"], ["#"] * 2, ["c", "#"]], tokenexp="a|ab|c")
    yield case("separators", [["ab", "dé", "c"], ["#"] * 3, ["c", "#", "#"]], separators=(" ", ","))
    yield case("characters", [[*"ab, dé c"], ["#"] * 8, ["c", *"#######"]], separators=("",))
    yield case("marks", [["\2", "c", "\3"], ["\2", "\3", "#"], ["\2", "c", "\3"]], tokenexp="c", mark=1)
    yield case("none", [[], [], []], tokenexp="x", mark=1)
