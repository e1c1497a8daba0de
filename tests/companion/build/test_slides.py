"""Slides from Markdown, with what executed pages hand over; and what the book's decks say."""

import json
from pathlib import Path

import pytest

from companion.build import slides
from companion.build.executed import Executed, NotThereError

ROOT = Path(__file__).resolve().parents[3]
FRONT = "---\ntitle: A deck\nquestion: Why?\nchapter: 3-a\n---\n"
SLIDE = "## A title\n\nSome text.\n\nNote: 3 minutes. Say it.\n"
CLAIM = """\
- id: thesis:3.1
  source: thesis
  title: A bound
  statement: It holds.
  expected: false as printed
  severity: constant
  page: 3-a/page
"""


@pytest.fixture
def root(tmp_path):
    """A repository with one executed page: a figure, two numbers, a claim."""

    def handed_over(name, kind, content):
        prefix = "application/papermill.record/"
        glued = {"scrapbook": {"name": name, "mime_prefix": prefix}}
        return {"metadata": glued, "data": {prefix + kind: content}}

    outputs = [
        handed_over("curve", "image/svg+xml", ["<svg>", "wide</svg>"]),
        handed_over("curve-narrow", "image/svg+xml", "<svg>narrow</svg>"),
        handed_over("runs", "text/plain", r"'1\u202f254'"),
        handed_over("quoted", "text/plain", '''"it's"'''),
        {"metadata": {}, "data": {"text/plain": "shown"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# The $x$ page\n", "\n", "Text."]},
        {"cell_type": "code", "source": "1", "outputs": outputs},
    ]
    folder = tmp_path / "book" / "nb" / "3-a"
    folder.mkdir(parents=True)
    (folder / "page.ipynb").write_text(json.dumps({"cells": cells}))
    record = {"id": "thesis:3.1", "verdict": "x", "numbers": {"ratio": 12345.678}}
    record |= {"page": "3-a/page", "profile": "quick"}
    (folder / "page.claims.json").write_text(json.dumps([record]))
    (tmp_path / "book" / "claims.yml").write_text(CLAIM)
    macros = {"tex": {"macros": {"E": "e"}}}
    config = {"sphinx": {"config": {"mathjax3_config": macros}}}
    (tmp_path / "_config.yml").write_text(json.dumps(config))
    (tmp_path / "book" / "slides").mkdir()
    return tmp_path


def written(root, text):
    """The deck of one slide with this text, as HTML."""
    deck = f"{FRONT}\n## A title\n\n{text}\n\nNote: 3 minutes. Say it.\n"
    (root / "book/slides/deck.md").write_text(deck)
    (path,) = slides.write(root, root / "site")
    return path.read_text()


def test_what_a_page_hands_over(root):
    executed = Executed(root)
    page = executed.page("3-a/page")
    assert page.title == "The $x$ page"
    assert page.figures == {"curve": "<svg>wide</svg>", "curve-narrow": "<svg>narrow</svg>"}
    assert page.numbers == {"runs": "1\u202f254", "quoted": "it's"}
    assert executed.evidence("thesis:3.1", "ratio", ",.0f") == "12\u202f346"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.page("3-a/none"), "no executed page 3-a/none"),
        (lambda e: e.figure("3-a/page", "none"), "no figure none; there is curve$"),
        (lambda e: e.number("3-a/page", "none"), "no number none; there is runs, quoted"),
        (lambda e: e.claim("thesis:9"), "no claim thesis:9"),
        (lambda e: e.evidence("thesis:3.1", "none"), "no evidence none; there is ratio"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(root, call, message):
    with pytest.raises(NotThereError, match=message):
        call(Executed(root))


def test_a_deck_is_read():
    deck = slides.parse("deck", FRONT + SLIDE + "\n---\n\n## Two {side}\n\nNote: 1 minute. End.\n")
    assert (deck.title, deck.question, deck.chapter, deck.minutes) == ("A deck", "Why?", "3-a", 4)
    assert deck.slides[0] == slides.Slide("A title", "Some text.", "Say it.", 3)
    assert deck.slides[1] == slides.Slide("Two", "", "End.", 1, side=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SLIDE, "begins with a block"),
        ("---\ntitle: A\n---\n" + SLIDE, "title, question, chapter"),
        (FRONT + "No title\n", "slide 2: it begins with 'No title'"),
        (FRONT + SLIDE + "---\n## B\n\ntext\n", r"slide 3 \(B\): no notes"),
        (FRONT + "## B\n\nNote: say it.\n", r"slide 2 \(B\): no notes"),
    ],
)
def test_a_malformed_deck_is_refused(text, message):
    with pytest.raises(slides.SlidesError, match=message):
        slides.parse("deck", text)


def test_numbers_figures_formulas_and_links_are_written(root):
    page = written(
        root,
        "![A curve](figure:3-a/page#curve-narrow)\n\n"
        "{number}`3-a/page runs`, {evidence}`thesis:3.1 ratio .1f`, {verdict}`thesis:3.1`\n\n"
        "[there](page:3-a/page), $a < b$ and\n\n$$x^2$$",
    )
    assert '<img src="figures/3-a/page/curve-narrow.svg" alt="A curve">' in page
    assert (root / "site/slides/figures/3-a/page/curve-narrow.svg").read_text().count("narrow") == 1
    assert "1\u202f254, 12345.7" in page
    checked = "../book/nb/3-a/page.html#claim-thesis-3-1"
    assert f'<a href="{checked}">false as printed (constant)</a>' in page
    assert '<a href="../book/nb/3-a/page.html">there</a>' in page
    assert r"\(a &lt; b\)" in page
    assert r"\[x^2\]" in page
    assert '{"tex": {"macros": {"E": "e"}}}' in page
    assert 'src="http' not in page
    assert 'href="http' not in page


def test_an_explorer_is_taken_from_its_page_with_all_that_it_loads(root):
    mount = '<div data-explorer="ball" role="group"><script>{}</script><noscript></noscript></div>'
    page = root / "site/book/nb/3-a/page.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        '<link href="../../../_static/explorers/explorers.css?v=1"><link href="../_static/a.css">'
        f'<script src="../../../_static/vendor/uplot/u.js"></script><p>a</p>{mount}<p>b</p>'
    )
    deck = written(root, "![moves](explorer:3-a/page#ball)")
    assert f'<div><div class="explorer">{mount}<small>' in deck  # not in a paragraph
    assert '<link rel="stylesheet" href="../_static/explorers/explorers.css?v=1">' in deck
    assert '<script defer src="../_static/vendor/uplot/u.js"></script>' in deck
    assert "a.css" not in deck
    with pytest.raises(slides.SlidesError, match="no explorer none"):
        written(root, "![moves](explorer:3-a/page#none)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("![a](figure:3-a/page#none)", "no figure none"),
        ("![](figure:3-a/page#curve)", "an image is"),
        ("![a](curve.svg)", "an image is"),
        ("{number}`3-a/page none`", "no number none"),
        ("{verdict}`thesis:9`", "no claim thesis:9"),
        ("{cite}`a`", "no role cite"),
        ("[x](page:3-a/none)", "no executed page"),
    ],
)
def test_what_no_page_has_fails_with_the_place(root, text, message):
    with pytest.raises(slides.SlidesError, match=rf"deck\.md, slide 2 \(A title\): .*{message}"):
        written(root, text)


def test_without_decks_nothing_is_needed(tmp_path):
    assert slides.write(tmp_path, tmp_path / "site") == []


@pytest.mark.parametrize("deck", slides.decks(ROOT), ids=lambda deck: deck.name)
def test_the_decks_of_the_book_have_the_length_of_a_lecture(deck):
    assert 15 <= len(deck.slides) + 1 <= 25
    assert 45 <= deck.minutes <= 100
    assert (ROOT / "book" / f"{deck.chapter}.md").is_file()
    assert sum("](figure:" in slide.text for slide in deck.slides) >= len(deck.slides) / 3
    assert all(len(slide.notes) > 100 for slide in deck.slides)
