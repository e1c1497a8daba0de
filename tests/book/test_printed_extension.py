"""Columns of tables on paper."""

import importlib.util
import re
from pathlib import Path

import pytest

from companion.build import pdf

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("printed", ROOT / "book" / "_ext" / "printed.py")
printed = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(printed)


def widths(spec):
    return [float(width) for width in re.findall(r"p\{([\d.]+)pt\}", spec)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["name", "value"], ["a", "1.5"]], "lr"),
        ([["name", "value"], ["a", "-3.1×10⁻⁶"], ["b", "nan"]], "lr"),
        ([["name", "value"], ["a", "1.5"], ["b", "none"]], "ll"),
        ([["alone", "12"]], "ll"),
        ([["", ""], ["", ""]], "rr"),
    ],
)
def test_numbers_stand_at_the_right(rows, expected):
    assert printed.columns(rows) == expected


@pytest.mark.parametrize(
    "lengths", [(10, 500), (200, 60, 60), (30,) * 20, (300, 300, 5, 5), (1000,), (80, 80)]
)
def test_a_wide_table_fits_the_line(lengths):
    rows = [["word " * (length // 5) for length in lengths] for _ in range(3)]
    spec = printed.columns(rows)
    kept = sorted(lengths)[: len(lengths) - len(widths(spec))]
    total = sum(widths(spec)) + printed.CHARACTER * sum(kept) + printed.BETWEEN * len(lengths)
    assert widths(spec)
    assert total <= printed.LINE + 0.1 * len(lengths)


def test_a_short_column_stays_whole_beside_a_long_one():
    spec = printed.columns([["name", "what"], ["a", "word " * 100]])
    assert spec.startswith("l>")
    assert widths(spec)[0] > 400


def test_every_environment_and_command_is_defined():
    style = (ROOT / "book" / "_ext" / "printed.sty").read_text(encoding="utf-8")
    source = (ROOT / "book" / "_ext" / "printed.py").read_text(encoding="utf-8")
    used = set(re.findall(r"\\(printed\w+)|begin\{+(printed\w+)", source))
    names = {name for pair in used for name in pair if name}
    assert names == {"printedbox", "printedfold", "printedtable", "printedverdict", "printedworks"}
    assert all(name in style for name in names)
    colours = {colour for colour, _ in printed.STYLES.values()} | set(printed._BOXES.values())
    assert all(f"definecolor{{printed{colour}}}" in style for colour in colours | {"note"})


def test_a_fresh_machine_gets_what_the_message_names():
    script = (ROOT / ".ci" / "tex").read_text(encoding="utf-8")
    assert "pdf.PACKAGES" in script
    assert "fonts-dejavu-core" in pdf.PACKAGES  # printed.sty asks for DejaVu
