"""Verdicts, evidence and figures of other pages, in a small book of their own."""

import json
import re
import shutil
from pathlib import Path

import pytest

from companion.build import site

ROOT = Path(__file__).resolve().parents[2]
PAGE = "3-x/page"
CLAIMS = [
    ("thesis:3.1", "false as printed", "constant"),
    ("thesis:3.2", "holds with conditions", "condition"),
    ("thesis:3.3", "holds", None),
]
CONFIG = f"""\
title: A book
only_build_toc_files: true
execute: {{execute_notebooks: "off"}}
parse: {{myst_enable_extensions: [colon_fence, dollarmath]}}
sphinx:
  extra_extensions: [sphinx_proof, sphinx_exercise]
  config: {{nb_render_markdown_format: myst}}
  local_extensions: {{pages: {ROOT / "book" / "_ext"}, answers: {ROOT / "book" / "_ext"}}}
"""
TEXT = """\
# First

{evidence}`thesis:3.1 worst_ratio .1f` and {verdict}`thesis:3.1`.

:::{prf:lemma} Too small (Thesis, Lemma 3.1)
:claim: thesis:3.1
:label: lem-one
It is at most 1.
:::

:::{prf:lemma} Corrected
:label: lem-one-corrected
It is at most 2.
:::

:::{prf:lemma} Nearly (Thesis, Lemma 3.2)
:claim: thesis:3.2
:label: lem-two
It is small.
:::

:::{prf:lemma} Right (Thesis, Lemma 3.3)
:claim: thesis:3.3
:label: lem-three
It is.
:::

:::{figure-of} 3-x/page line
:alt: A line.

The line.
:::
"""


def output(name, svg):
    prefix = "application/papermill.record/"
    return {
        "output_type": "display_data",
        "data": {f"{prefix}image/svg+xml": svg},
        "metadata": {"scrapbook": {"name": name, "mime_prefix": prefix}},
    }


def page():
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="9"/>'
    badges = [
        f'<div id="claim-{i.replace(":", "-").replace(".", "-")}">x</div>' for i, *_ in CLAIMS
    ]
    targets = [
        {"output_type": "display_data", "metadata": {}, "data": {"text/markdown": f"({a})=\n\nx"}}
        for a in (re.search(r'id="(.*?)"', badge)[1] for badge in badges)
    ]
    glued = [output("line", svg.format(80)), output("line-narrow", svg.format(50))]
    figure = ":::{glue:figure} line\n:alt: A line.\n\nThe line.\n:::"
    exercise = ":::{exercise-start} One\n:label: ex-one\n:::\nHow many?\n:::{exercise-end}\n:::"
    fields = {"label": "ex-one", "value": 3.0, "what": "<cats>", "rtol": 0.01, "atol": 0.5}
    answer = {
        "output_type": "display_data",
        "data": {"text/plain": "answer: 3"},
        "metadata": {"answer": fields},
    }
    glued.append(answer)
    cells = [
        {"cell_type": "markdown", "metadata": {}, "id": "a", "source": f"# Page\n\n{exercise}"},
        {
            "cell_type": "code",
            "metadata": {},
            "id": "b",
            "source": "show()",
            "execution_count": 1,
            "outputs": [*targets, *glued],
        },
        {"cell_type": "markdown", "metadata": {}, "id": "c", "source": figure},
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = tmp_path_factory.mktemp("book")
    listed = [
        {
            "id": i, "source": "thesis", "title": "T", "statement": "S", "expected": verdict,
            "page": PAGE, **({"severity": severity} if severity else {}),
        }
        for i, verdict, severity in CLAIMS
    ]  # fmt: skip
    record = {
        "id": "thesis:3.1", "verdict": "false as printed", "numbers": {"worst_ratio": 1.25},
        "page": PAGE, "profile": "quick",
    }  # fmt: skip
    files = {
        "_config.yml": CONFIG,
        "_toc.yml": f"format: jb-book\nroot: first\nchapters: [{{file: book/nb/{PAGE}}}]\n",
        "first.md": TEXT,
        "book/claims.yml": json.dumps(listed),
        f"book/nb/{PAGE}.ipynb": json.dumps(page()),
        f"book/nb/{PAGE}.claims.json": json.dumps([record]),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def build(root):
    return site.jupyter_book(root, "-W", "-n", "--keep-going")


def test_a_page_shows_verdicts_evidence_and_figures(book):
    done = build(book)
    assert done.returncode == 0, done.stdout
    html = (book / "_build/html/first.html").read_text()
    assert "1.2 and" in html or "1.3 and" in html
    boxes = re.findall(r'<div class="proof lemma([^"]*) admonition" id="(.*?)">', html)
    assert {name: style.strip() for style, name in boxes} == {
        "lem-one": "statement-false",
        "lem-one-corrected": "",
        "lem-two": "statement-conditions",
        "lem-three": "",
    }
    # the verdict in a title leads to the correction, or else to the check
    assert re.search(r'href="#lem-one-corrected"[^>]*><span class="verdict verdict-false"', html)
    assert re.search(r'href="book/nb/3-x/page.html#claim-thesis-3-2"', html)
    for where in (html, (book / f"_build/html/book/nb/{PAGE}.html").read_text()):
        assert where.count("for-wide") == where.count("for-narrow") == 1
    box = re.search(r'id="ex-one".*?<div class="exercise-answer" hidden([^>]*)>', where, re.DOTALL)
    assert 'data-value="3.0"' in box[1]
    assert 'data-what="&lt;cats&gt;"' in box[1]


def test_an_answer_needs_its_exercise(book, tmp_path):
    damaged = tmp_path / "book"
    shutil.copytree(book, damaged, ignore=shutil.ignore_patterns("_build"))
    path = damaged / f"book/nb/{PAGE}.ipynb"
    path.write_text(path.read_text().replace(":label: ex-one", ":label: ex-two"))
    done = build(damaged)
    assert done.returncode != 0
    assert f"book/nb/{PAGE}: no exercise has the label ex-one" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":claim: thesis:3.1", ":claim: thesis:9.9", "thesis:9.9 is not listed"),
        ("page line", "page lines", "3-x/page has no figure lines; it has line"),
    ],
)
def test_what_does_not_exist_is_named(book, tmp_path, old, new, message):
    damaged = tmp_path / "book"
    shutil.copytree(book, damaged, ignore=shutil.ignore_patterns("_build"))
    (damaged / "first.md").write_text(TEXT.replace(old, new))
    done = build(damaged)
    assert done.returncode != 0
    assert message in done.stdout
