"""Notebooks that run anywhere: what is shown where, what students get, what the wheels hold."""

import json
import zipfile
from pathlib import Path

import pytest

from companion.build import notebooks, plain
from companion.exercise import Answer
from companion.files import write_atomic

ROOT = Path(__file__).resolve().parents[3]
RECORD = "application/papermill.record/"


def glue(name, **data):
    return {
        "output_type": "display_data",
        "data": {f"{RECORD}{kind.replace('_', '/')}": value for kind, value in data.items()},
        "metadata": {"scrapbook": {"name": name, "mime_prefix": RECORD}},
    }


def figure(name):
    return glue(name, **{"image_svg+xml": "<svg/>", "text_plain": "<Figure>"})


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text, "id": text[:8]}


def code(source, *outputs, tags=()):
    metadata = {"tags": list(tags)}
    return {
        "cell_type": "code", "metadata": metadata, "source": source, "outputs": list(outputs),
        "id": source[:8],
    }  # fmt: skip


def answered(label, value, what):
    fields = {"label": label, "value": value, "what": what, "rtol": 0.01, "atol": 0.5}
    data = {"text/plain": f"answer: {value}"}
    return {"output_type": "display_data", "data": data, "metadata": {"answer": fields}}


PAGE = {
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "cells": [
        markdown("# Title\n\n:::{glue:figure} curve\n:name: f\nCaption with {glue:text}`n`.\n:::"),
        code("seed = 1", tags=["parameters", "hide-input"]),
        code("profile = 'quick'", tags=["injected-parameters", "remove-cell"]),
        code("draw()", figure("curve-narrow"), figure("curve"), glue("n", text_plain="'20'")),
        code("figures.number('x', 1)", tags=["remove-cell"]),
        markdown("Before.\n\n:::{exercise-start} One\n:label: ex-one\n:::\nHow many?\n"
                 ":::{exercise-end}\n:::\n\n"
                 ":::{solution-start} ex-one\n:class: dropdown\n:::\nBecause."),
        code("exercise.answer('ex-one', 3, 'cats', atol=0.5)", answered("ex-one", 3, "cats")),
        markdown("So.\n\n:::{solution-end}\n:::\n\n## After"),
    ],
}  # fmt: skip


def made(*, student=False):
    return notebooks.portable(PAGE, "3-a/page", plain.Names(), "$m$", "pages", student=student)[
        "cells"
    ]


def sources(cells):
    return [cell["source"] for cell in cells]


def test_a_figure_stands_below_the_code_that_draws_it_with_its_caption():
    cells = made()
    place = sources(cells).index("draw()")
    [shown] = cells[place]["outputs"]
    assert shown["data"] == {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"}
    assert cells[place + 1]["source"] == "*Figure.* Caption with 20."
    assert cells[0]["source"] == "# Title\n\n$m$"


def test_what_only_the_runner_needs_is_gone_or_folded():
    cells = made()
    assert not any("profile = 'quick'" in text for text in sources(cells))
    folded = [c["source"] for c in cells if c["metadata"].get("jupyter", {}).get("source_hidden")]
    assert folded == ["figures.number('x', 1)"]
    [parameters] = [c for c in cells if c["metadata"].get("tags") == ["parameters"]]
    assert parameters["source"] == "seed = 1"


def test_the_first_code_installs_what_the_page_needs():
    code_cells = [cell for cell in made() if cell["cell_type"] == "code"]
    assert (
        '%pip install --quiet --find-links . --find-links .. "dprl-book[pages]"'
        in (code_cells[0]["source"])
    )


def test_students_get_the_question_and_a_check_but_no_solution():
    texts = sources(made(student=True))
    (check,) = (text for text in texts if text.startswith("# your answer"))
    assert check.splitlines()[-2:] == ["", 'exercise.check("ex-one", ..., "cats")']
    assert any("How many?" in text for text in texts)
    assert texts[-1] == "## After"
    assert not any("Because" in text or "So." in text or "0.5" in text for text in texts)
    assert all(not cell.get("outputs") for cell in made(student=True))
    assert any("Because" in text for text in sources(made()))


def test_the_books_own_notebooks_are_valid_and_have_no_directive(tmp_path):
    import nbformat

    path = tmp_path / "page.ipynb"
    made = notebooks.portable(PAGE, "3-a/page", plain.Names(), "", "pages", student=False)
    path.write_text(json.dumps(made))
    nbformat.validate(nbformat.read(path, as_version=4))
    assert ":::" not in path.read_text()


def test_formulas_know_the_abbreviations_of_the_book():
    macros = notebooks.macros_of(ROOT)
    assert r"\newcommand{\E}{\mathbb{E}}" in macros
    assert r"\newcommand{\norm}[1]{\left\lVert #1 \right\rVert}" in macros
    assert macros.startswith("$")
    assert macros.endswith("$")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    notebooks.build_wheels(ROOT, folder, [Answer("ex-one", 3.0, "", 0.01, 0.0)])
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in folder.glob("*.whl")}


def test_the_wheel_of_the_book_holds_what_pages_read_and_not_the_package(wheels):
    names = wheels["dprl_book"].namelist()
    assert "companion/_book/book/claims.yml" in names
    assert "companion/_book/data/results/paper/figure-3-1.csv" in names
    assert "experiments/chapter_4.py" in names
    listed = json.loads(wheels["dprl_book"].read("companion/_book/book/answers.json"))
    assert [each["label"] for each in listed] == ["ex-one"]
    assert not any(name.startswith("dprl/") for name in names)
    metadata = next(name for name in names if name.endswith("METADATA"))
    needs = wheels["dprl_book"].read(metadata).decode()
    assert "Requires-Dist: dprl==" in needs
    assert "Provides-Extra: membership" in needs


@pytest.mark.parametrize(
    ("libraries", "extra"),
    [
        (["numpy"], "pages"),
        (["jax"], "off-policy"),
        (["jax", "mujoco"], "membership"),
        (["gymnasium", "jax"], "membership"),
        (["opendp"], "release"),
    ],
)
def test_a_page_needs_the_extra_that_has_its_libraries(tmp_path, libraries, extra):
    stamp = {"inputs": {"libraries": dict.fromkeys(libraries, "1")}, "outputs": {}}
    write_atomic(tmp_path / "book/nb/a/page.stamp.json", json.dumps(stamp))
    assert notebooks.extra_of(tmp_path, "a/page") == extra
    assert notebooks.extra_of(tmp_path, "a/other") == "pages"


def test_without_the_repository_the_installed_claims_and_records_are_found(tmp_path, monkeypatch):
    from companion import files

    installed = tmp_path / "site" / "_book"
    write_atomic(installed / "book/claims.yml", "[]")
    monkeypatch.setattr(files, "_INSTALLED", installed)
    monkeypatch.chdir(tmp_path)
    assert files.find_root() == installed
    assert files.build_folder() == tmp_path / "_build"


def test_a_page_that_never_ran_is_named(tmp_path, monkeypatch, capsys):
    write_atomic(tmp_path / "_toc.yml", "root: book/nb/3-chapter/page\n")
    monkeypatch.chdir(tmp_path)
    assert notebooks.main() == 1
    assert "not executed yet: 3-chapter/page; run make book" in capsys.readouterr().err
