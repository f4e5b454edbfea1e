"""Work-size formulas: C arithmetic on 32-bit integers, and every malformed text an error."""

import random

import pytest

from dovetail.errors import UsageError
from dovetail.op import Formula, dimensions

VALUES = {"B": 2, "F": 5, "Y": 7, "X": 11}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("B*F*Y*X", 770),
        ("((X + 31)/32)*32", 32),
        ("x-y-f", -1),
        ("X-(Y-F)", 9),
        ("-X/2", -5),
        ("-X%3", -2),
        ("X%-3", 2),
        ("2*-3", -6),
        ("--7", 7),
        ("-(B+F)*2", -14),
        ("\t X \n", 11),
        ("7", 7),
        ("B+F*Y", 37),
        ("100/7/2", 7),
        ("2147483647", 2147483647),
    ],
)
def test_values(text: str, value: int) -> None:
    assert Formula.parse(text).evaluate(VALUES) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "B F *",
        "*BF",
        "()5",
        "2 3",
        "5X",
        "X(Y)",
        ")(",
        "(X",
        "X)",
        "X+",
        "0x10",
        "Z",
        "X,Y",
        "X^2",
        "X//2",
        "X**2",
        "1_0",
        "1.0",
        "0b1",
        "07",
        "()",
        "X if Y else B",
        "B\0",
        "٣",
        "+X",
        "99999999999",
        "9" * 5000,
    ],
)
def test_malformed(text: str) -> None:
    with pytest.raises(UsageError, match="formula") as caught:
        Formula.parse(text)
    assert "accepted" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"), [("X/(Y-7)", "divides by zero"), ("X%0", "divides by zero"), ("X*1000000*1000", "range of 32-bit")]
)
def test_values_that_do_not_exist(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Formula.parse(text).evaluate(VALUES)


@pytest.mark.parametrize("text", ["(" * 50_000 + "X" + ")" * 50_000, "-" * 50_000 + "X", "(" * 240 + "X" + ")" * 240])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="formula"):
        Formula.parse(text)


def test_the_longest_formulas() -> None:
    assert Formula.parse("-" * 498 + "X").evaluate(VALUES) == 11
    assert Formula.parse("+".join("X" * 250)).evaluate(VALUES) == 250 * 11


def test_against_c_arithmetic_on_random_formulas() -> None:
    choose = random.Random(5)

    def build(depth: int) -> tuple[str, int | None]:
        if depth == 0 or choose.random() < 0.2:
            if choose.random() < 0.5:
                name = choose.choice("BFYX")
                return name, VALUES[name]
            number = choose.randint(0, 20)
            return str(number), number
        sign = choose.choice("+-*/%")
        (left, a), (right, b) = build(depth - 1), build(depth - 1)
        text = f"({left}) {sign} ({right})"
        if a is None or b is None or (sign in "/%" and b == 0):
            return text, None
        c_quotient = int(a / b) if sign in "/%" else 0
        value = {"+": a + b, "-": a - b, "*": a * b, "/": c_quotient, "%": a - c_quotient * b}[sign]
        return text, value if abs(value) < 1 << 31 else None

    checked = 0
    for _ in range(500):
        text, value = build(4)
        if value is not None:
            assert Formula.parse(text).evaluate(VALUES) == value, text
            checked += 1
    assert checked > 300


def test_dimensions_are_aligned_on_the_left() -> None:
    assert dimensions((2, 3)) == {"B": 2, "F": 3, "Y": 1, "X": 1}
    assert dimensions(()) == {"B": 1, "F": 1, "Y": 1, "X": 1}
    with pytest.raises(UsageError, match="5 dimensions"):
        dimensions((1, 2, 3, 4, 5))
