"""Printing: escapes, JSON, tables, figures with units."""

import json

import pytest

from dovetail.cli import _output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv_1", "conv_1"),
        ("Größe ☃", "Größe ☃"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc\x00d\x7f", "a\\nb\\tc\\x00d\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("thin\u2009space", "thin space"),
        ("lone\udc80", "lone\\udc80"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert _output.clean(text) == shown


def test_lines_are_kept_on_request() -> None:
    assert _output.clean("a\nb\r", keep_lines=True) == "a\nb\\r"


def test_json_has_no_nan_and_only_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    _output.print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("\x1b", {1: "é"})})
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": ["\x1b", {"1": "é"}]}


def test_tables_are_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    _output.print_table("Long", ("name", ">size"), [("x" * 300, 5), ("[bold]y[/bold] :smile:", 1234)])
    out = capsys.readouterr().out
    assert "x" * 300 in out
    assert "[bold]y[/bold] :smile:" in out
    assert "\x1b" not in out
    first, second = (line for line in out.splitlines() if "x" in line or "y" in line)
    assert first.rstrip().endswith("   5")
    assert second.rstrip().endswith("1234")


def test_table_cells_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    _output.print_table("Names", ("name",), [("\x1b]0;owned\x07",)])
    assert "\\x1b]0;owned\\x07" in capsys.readouterr().out


def test_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _output.print_table("Devices", ("name",), [], empty="none installed")
    assert capsys.readouterr().out == "Devices: none installed\n\n"


def test_remarks_and_progress_stay_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    _output.remark("wrote it")
    with _output.progress("work", 2) as advance:
        advance(2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "wrote it\n"  # no bar either: stderr is not a terminal here


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2, "2.00 s"), (0.0123, "12.3 ms"), (456e-6, "456 us"), (7.891e-6, "7.89 us"), (5e-7, "0.5 us"), (0, "0 us")],
)
def test_durations(seconds: float, text: str) -> None:
    assert _output.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (12010, "12,010"), (2_500_000, "2.50 M"), (8.21e9, "8.21 G"), (1.5e12, "1.50 T")]
)
def test_counts(number: float, text: str) -> None:
    assert _output.count(number) == text


@pytest.mark.parametrize(("nbytes", "text"), [(640, "640 B"), (12_500, "12.5 kB"), (97_700_000, "97.7 MB"), (3e9, "3.00 GB")])
def test_sizes(nbytes: float, text: str) -> None:
    assert _output.size(nbytes) == text
