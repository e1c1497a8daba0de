"""Which tables a figure is drawn from, and what the archive says of it."""

import json
import zipfile

import pytest

from companion.build import figure_archive, plain

DRAW = "fig = draw(runs)\nfigures.glue_figure('error', fig)"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["runs = trials()", "records.save('a', runs)", DRAW], {"a"}),
        (["records.save('a', other)", "runs = trials()", DRAW], set()),
        (["runs = records.load('a').frame", DRAW], {"a"}),
        (["runs = records.load('a').frame\nother = records.load('b').frame", DRAW], {"a"}),
        (["raw = records.load('b')", "runs = raw.assign(x=1)", DRAW], {"b"}),
        (["raw = records.load('b')", "runs['x'] = raw.x", DRAW], {"b"}),
        (["raw = records.load('a')", "def draw(r):\n    return raw", "runs = 1", DRAW], {"a"}),
        ([DRAW, "runs = records.load('a')"], set()),
        (["import runs", DRAW], set()),
        (["runs = records.load('no table')", DRAW], set()),
    ],
)
def test_the_tables_behind_a_figure(cells, expected):
    assert figure_archive.tables_of_figures(cells, ["a", "b"]) == {"error": expected}


def test_a_figure_with_a_computed_name_is_left_out():
    cells = ["for n in names:\n    figures.glue_figure(n, draw(n))"]
    assert figure_archive.tables_of_figures(cells, ["a"]) == {}


def test_the_archive(tmp_path, monkeypatch):
    glued = {"scrapbook": {"name": "error", "mime_prefix": "p/"}}
    outputs = [{"metadata": glued, "data": {"p/image/svg+xml": "<svg/>"}}]
    text = "# Title\n\n:::{glue:figure} error\n:name: fig-1\n:alt: A line.\n\nThe point.\n:::\n"
    load = "%magic\nruns = records.load('a').frame"
    cells = [
        {"cell_type": "markdown", "source": text},
        {"cell_type": "code", "source": load, "outputs": []},
        {"cell_type": "code", "source": DRAW, "outputs": outputs},
    ]
    page = tmp_path / "book/nb/3-a"
    page.mkdir(parents=True)
    (page / "page.ipynb").write_text(json.dumps({"cells": cells}))
    read = {"data/results/paper/a.csv": "x", "data/results/paper/none.csv": None}
    stamp = {"inputs": {"read": read}, "outputs": {}}
    (page / "page.stamp.json").write_text(json.dumps(stamp))
    tables = tmp_path / "data/results/paper"
    tables.mkdir(parents=True)
    (tables / "a.csv").write_text("x\n1\n")
    (tables / "a.json").write_text("{}")
    monkeypatch.setattr(plain, "names_of_book", lambda *_: plain.Names())
    monkeypatch.setattr(figure_archive, "png", lambda *_: b"pixels")
    with zipfile.ZipFile(figure_archive.write(tmp_path, ["3-a/page"])) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    said = found.pop("3-a/page--error.txt")
    assert found == {
        "3-a/page--error.svg": "<svg/>",
        "3-a/page--error.png": "pixels",
        "3-a/data/a.csv": "x\n1\n",
        "3-a/data/a.json": "{}",
    }
    assert said.startswith("*Figure.* The point.\n")
    assert "Description: A line." in said
    assert "Page: Title (3-a/page)" in said
    assert "Data: data/a.csv\n" in said


def test_what_is_drawn_is_kept(tmp_path):
    assert not list(tmp_path.iterdir())
    (tmp_path / f"{figure_archive.sha256(b'<svg/>')[:24]}.png").write_bytes(b"kept")
    assert figure_archive.png("<svg/>", tmp_path) == b"kept"
