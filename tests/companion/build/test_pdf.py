"""The book on paper: what is written for LaTeX, and a small book set from beginning to end."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from companion.build import pdf, site

ROOT = Path(__file__).resolve().parents[3]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
BADGE = (
    '<details class="claim-badge" id="claim-thesis-3-1"><summary>'
    '<span class="verdict verdict-false severity-constant">false as printed (constant)</span> '
    '<code class="claim-id">thesis:3.1</code></summary>'
    '<span class="claim-numbers">ratio = 2</span></details>'
)
BADGE_MARKDOWN = "(claim-thesis-3-1)=\n\nfalse as printed (constant): thesis:3.1 (ratio = 2)"


def shown(**data):
    data = {kind.replace("_", "/", 1): text for kind, text in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def notebook(*cells):
    made = []
    for number, cell in enumerate(cells):
        metadata = {"id": f"c{number}", "metadata": {}}
        if isinstance(cell, str):
            made.append({"cell_type": "markdown", "source": cell, **metadata})
        else:
            code = {"cell_type": "code", "source": "show()", "execution_count": 1}
            made.append({**code, "outputs": cell, **metadata})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


# -- what is written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td></tr></table>",
            ["|  |  |", "|---|---|", "| a | b |", "| 1 |  |"],
        ),
        (
            "<table><thead><tr><th></th><th colspan='2'>x</th></tr><tr><th></th><th>$a$</th>"
            "<th>b_1</th></tr></thead><tbody><tr><th>r</th><td>1\n 2</td><td>*</td></tr></table>",
            ["|  | x \\$a\\$ | b\\_1 |", "|---|---|---|", "| r | 1 2 | \\* |"],
        ),
    ],
)
def test_a_table_is_a_table(text, lines):
    assert pdf.table(text).replace("&nbsp;", "").splitlines() == lines


def test_what_a_page_shows_in_a_browser_is_text():
    card = '<details class="provenance-card"></details>'
    frame = "<table><thead><tr><th>a</th></tr></thead><tr><td>1</td></tr></table>"
    source = notebook(
        "# Page",
        [
            shown(text_html=BADGE, text_markdown=BADGE_MARKDOWN),
            shown(text_html=card),
            shown(text_html=frame, text_plain="a\n1"),
            shown(text_plain="5"),
        ],
    )
    before = json.dumps(source)
    made = pdf.printed(source)
    assert json.dumps(source) == before
    found = [output["data"] for output in made["cells"][1]["outputs"]]
    verdict = "{shown-verdict}`verdict-false false as printed (constant)`"
    assert found == [
        {"text/markdown": f"(claim-thesis-3-1)=\n\n{verdict} thesis:3.1 (ratio = 2)"},
        {"text/markdown": "| a |\n|---|\n| 1 |"},
        {"text/plain": "5"},
    ]


def test_a_badge_without_a_verdict_is_refused():
    with pytest.raises(pdf.PdfError, match="without a verdict"):
        pdf.badge("<details></details>", "text")


def test_the_scorecard_keeps_names_and_verdicts():
    text = """\
# Scorecard

Every claim.
Each square is one claim: open a chapter, or ask
for a verdict below. A claim's name leads there.

<div id="scorecard-filter"></div>

<details class="scorecard-chapter"><summary>2 · Background: 1 claims
<span class="tiles" aria-hidden="true"><span class="tile"></span></span></summary>

:::{list-table}
:widths: 60 20 20

* - Claim
  - Verdict
* - **Returns** ({ref}`thesis:2 <claim-thesis-2>`)

    The return.

    <details><summary>Evidence</summary>

    </details>

  - <span class="verdict verdict-holds">holds</span>
:::

</details>
"""
    made = pdf.scorecard(text)
    assert "Every claim.\nA claim's name leads there." in made
    assert "## 2 · Background: 1 claims\n\n:::{list-table}\n\n" in made
    row = "* - **Returns** ({ref}`thesis:2 <claim-thesis-2>`)\n  - {shown-verdict}`verdict-holds "
    assert row + "holds`\n:::" in made
    assert "<" not in made.replace("<claim", "")


def test_pages_for_the_site_are_left_out():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    made = pdf.contents(toc)
    listed = re.findall(r"book/[\w/.-]+", yaml.safe_dump(made))
    of_all = re.findall(r"book/[\w/.-]+", yaml.safe_dump(toc))
    assert set(of_all) - set(listed) == {n for n in of_all if n.startswith(pdf.LEFT_OUT)}
    assert set(listed) > {"book/intro", "book/references", "book/nb/scorecard"}


def test_the_configuration_is_that_of_the_book_for_latex():
    made = pdf.configuration(CONFIG, r"\newcommand{\E}{E}", "2026-01-02, commit abc")
    before, sphinx = CONFIG["sphinx"], made["sphinx"]
    assert sphinx["config"]["today"] == "2026-01-02, commit abc"
    assert r"\newcommand{\E}{E}" in sphinx["config"]["latex_elements"]["preamble"]
    assert "sphinx.ext.autodoc" in before["extra_extensions"]  # the book's own is as it was
    assert not any("autodoc" in name for name in [*sphinx["extra_extensions"], *sphinx["config"]])
    assert set(sphinx["local_extensions"]) <= {*before["local_extensions"], "printed"}
    for name in ("prf_realtyp_to_countertyp", "numfig_secnum_depth", "math_numfig"):
        assert sphinx["config"][name] == before["config"][name]  # numbers are those of the site


def test_faults_are_what_a_reader_meets():
    log = """\
LaTeX Warning: Reference `a' on page 3 undefined on input line 7.
LaTeX Warning: Reference `a' on page 3 undefined on input line 7.
Missing character: There is no x in font y!
Overfull \\hbox (19.9pt too wide) in paragraph at lines 1--2
Overfull \\hbox (20.1pt too wide) in paragraph at lines 3--4
LaTeX Font Warning: Font shape undefined
"""
    assert pdf.faults(log) == [
        "LaTeX Warning: Reference `a' on page 3 undefined on input line 7.",
        "Missing character: There is no x in font y!",
        "Overfull \\hbox (20.1pt too wide) in paragraph at lines 3--4",
    ]


def test_the_edition_is_day_and_commit(tmp_path):
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", pdf.edition_of(tmp_path))
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "One"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    clean = pdf.edition_of(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d, commit [0-9a-f]{7,}", clean)
    (tmp_path / "file").write_text("2")
    assert pdf.edition_of(tmp_path) == clean + pdf.CHANGED


def test_without_latex_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pdf, "missing_tools", lambda: ["xelatex"])
    assert pdf.main([]) == 1
    assert pdf.main(["--if-possible"]) == 0
    said = capsys.readouterr().err
    assert said.count("no PDF: xelatex not on this machine") == 2
    assert "apt-get install texlive-xetex" in said


def test_with_latex_a_failure_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pdf, "missing_tools", list)
    monkeypatch.setattr(site, "pages", lambda _: ["3-x/page"])
    monkeypatch.setattr(site, "stale", lambda *_: ["  3-x/page: never executed"])
    assert pdf.main(["--if-possible"]) == 1
    assert "no valid execution: make book\n  3-x/page: never executed" in capsys.readouterr().err
    assert pdf.main(["--stale"]) == 1
    assert "not executed yet: 3-x/page; run make book" in capsys.readouterr().err


# -- from beginning to end ------------------------------------------------------------------

PAGE = """\
# Page

See {prf:ref}`lem-one`, {eq}`eq-one`, {numref}`fig-one`, {ref}`ex-one` and {verdict}`thesis:3.1`.
[The package](../../api/index.md) and [the site](../take-away.md) have no page here.

$$
x = 1
$$ (eq-one)

:::{prf:lemma} Too small (Thesis, Lemma 3.1)
:claim: thesis:3.1
:label: lem-one
It is at most 1.
:::

:::{dropdown} Proof
By hand. ∎
:::

:::{exercise-start} One
:label: ex-one
:::
How many?
:::{exercise-end}
:::

:::{solution-start} ex-one
:class: dropdown
:::
Three.
:::{solution-end}
:::
"""
CLAIM = """\
- id: thesis:3.1
  source: thesis
  page: 3-x/page
  expected: false as printed
  severity: constant
  title: It
  statement: It is.
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of one page, with what the book's own extensions make."""
    root = tmp_path_factory.mktemp("paper")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="9"><rect width="9"/></svg>'
    figure = ":::{figure} ../../images/line.svg\n:name: fig-one\nThe line, $x$ {eq}`eq-one`.\n:::\n"
    frame = "<table><thead><tr><th>numbers</th></tr></thead><tr><td>1.5</td></tr></table>"
    texts = {
        "book/intro.md": "# A book\n\nWhat it is.\n",
        "book/chapter.md": "# Chapter\n\n```{tableofcontents}\n```\n",
        "book/references.md": "# Works\n\nNone.\n",
        "book/claims.yml": CLAIM,
        "book/references.bib": "",
        "book/_static/favicon.ico": "",
        "book/images/line.svg": svg,
        "notebooks/3-x/page.md": PAGE,
        "_config.yml": yaml.safe_dump({**CONFIG, "title": "A book"}),
        "_toc.yml": yaml.safe_dump(
            {
                "format": "jb-book",
                "root": "book/intro",
                "parts": [
                    {
                        "caption": "All",
                        "numbered": 2,
                        "chapters": [
                            {
                                "file": "book/chapter",
                                "sections": [{"file": "book/nb/3-x/page"}],
                            }
                        ],
                    },
                    {
                        "caption": "Rest",
                        "chapters": [{"file": "book/nb/scorecard"}, {"file": "book/references"}],
                    },
                ],
            }
        ),
    }
    shutil.copytree(ROOT / "book" / "_ext", root / "book" / "_ext")
    executed = notebook(
        PAGE, figure, [shown(text_html=BADGE, text_markdown=BADGE_MARKDOWN), shown(text_html=frame)]
    )
    texts["book/nb/3-x/page.ipynb"] = json.dumps(executed)
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_sources_are_complete(book, monkeypatch):
    monkeypatch.setitem(site.GENERATED, "scorecard", lambda _: "# Scorecard\n\nNone.\n")
    place = pdf.write_sources(book, "2026-01-02, commit abc")
    assert (place / "book/nb/scorecard.md").is_file()
    assert (place / "book/_ext/printed.sty").is_file()
    assert "shown-verdict" in (place / "book/nb/3-x/page.ipynb").read_text(encoding="utf-8")


@pytest.mark.skipif(bool(pdf.missing_tools()), reason=f"LaTeX is missing: {pdf.missing_tools()}")
def test_a_small_book_is_set(book, monkeypatch, capsys):
    monkeypatch.setitem(site.GENERATED, "scorecard", lambda _: "# Scorecard\n\nNone.\n")
    monkeypatch.setattr(site, "stale", lambda *_: ["  3-x/page: the page changed"])
    monkeypatch.chdir(book)
    assert pdf.main(["--stale"]) == 0
    assert re.match(r"_build/pdf/on-privacy-for-rl\.pdf: \d+ pages, ", capsys.readouterr().out)
    assert (book / pdf.PRODUCT).read_bytes().startswith(b"%PDF")
    edition = pdf.edition_of(book) + pdf.OLD_PAGES
    assert (book / pdf.EDITION).read_text(encoding="utf-8") == edition
    tex = next((book / pdf.PLACE).rglob(f"{pdf.NAME}.tex")).read_text(encoding="utf-8")
    assert rf"\date{{{edition}}}" in tex
    body = tex.partition(r"\begin{document}")[2]
    for needed in (
        r"\begin{printedbox}{false}{Lemma 1.1.1 ",
        r"\printedverdict{false}{✗}{false as printed (constant)}",
        r"\begin{printedfold}{Proof}",
        r"\begin{printedfold}{Solution to ",
        r"\begin{printedbox}{exercise}{Exercise 1.1.1 (One)}",
        r"\tag{1.1.1}\label{equation:book/nb/3-x/page:eq-one}",
        r"\renewcommand{\thefigure}{1.1.1}",
        r"\begin{tabular}[t]{r}",
        "The package and the site have no page here.",
    ):
        assert needed in body, needed
