"""The table of contents, and a site that is built beside the last one or not at all."""

from pathlib import Path

import pytest

from companion.build import freshness, site
from companion.dependencies import sources_of
from companion.files import digest, source_path

TOC = """\
format: jb-book
root: book/intro
parts:
  - caption: One
    chapters:
      - file: book/nb/3-a/page
        sections:
          - file: book/nb/3-a/inner
      - url: https://example.org
  - caption: Two
    chapters:
      - file: book/nb/scorecard
      - file: book/notation
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/intro.md").write_text("# Start\n")
    return tmp_path


def executed(root: Path, page: str) -> None:
    """Leave what a complete execution leaves."""
    source, notebook = source_path(root, page), freshness.product_path(root, page, "ipynb")
    for path in (source, notebook):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {page}\n")
    name = notebook.relative_to(root).as_posix()
    made_from = freshness.inputs(root, page, {"profile": "quick"})
    made_from |= freshness.inputs_found(root, page, {"read": {}, "loaded": {}}, sources_of(root))
    freshness.write_stamp(
        freshness.product_path(root, page, "stamp.json"), made_from, {name: digest(notebook)}
    )


@pytest.fixture
def complete(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book whose pages are all executed; Jupyter Book is played by a copy of its start page."""
    for page in site.pages(root):
        executed(root, page)

    def render(where: Path) -> None:
        assert (where / "book/nb/scorecard.md").read_text() == "# Scorecard\n"
        html = where / "_build/next/_build/html"
        html.mkdir(parents=True, exist_ok=True)
        (html / "index.html").write_text((where / "book/intro.md").read_text())

    monkeypatch.setattr(site, "_run_jupyter_book", render)
    monkeypatch.setitem(site.GENERATED, "scorecard", lambda root: "# Scorecard\n")
    monkeypatch.setattr(site.notebooks, "write", lambda root, pages: [])
    monkeypatch.setattr(site.figure_archive, "write", lambda root, pages: [])
    return root


def test_table_of_contents_in_reading_order(root):
    assert site.toc_entries(root) == [
        "book/intro",
        "book/nb/3-a/page",
        "book/nb/3-a/inner",
        "book/nb/scorecard",
        "book/notation",
    ]
    assert site.pages(root) == ["3-a/page", "3-a/inner"]


def test_site_is_built_once_and_again_when_something_changed(complete):
    assert site.reason(complete) == "never made"
    site.build(complete, "quick")
    assert (complete / site.SITE / "index.html").read_text() == "# Start\n"
    assert site.reason(complete) is None

    (complete / "book/intro.md").write_text("# Begin\n")
    assert site.reason(complete) == "book/intro.md changed"
    site.build(complete, "quick")
    assert (complete / site.SITE / "index.html").read_text() == "# Begin\n"

    (complete / site.SITE / "index.html").write_text("by hand")
    assert site.reason(complete) == "output index.html altered"


def test_page_without_valid_execution_stops_the_build(complete):
    site.build(complete, "quick")
    with pytest.raises(site.SiteError, match="3-a/page: profile quick -> paper"):
        site.build(complete, "paper")
    source_path(complete, "3-a/inner").write_text("# Changed\n")
    with pytest.raises(site.SiteError, match="3-a/inner: the page changed"):
        site.build(complete, "quick")
    freshness.product_path(complete, "3-a/page", "stamp.json").unlink()
    with pytest.raises(site.SiteError, match="3-a/page: never executed"):
        site.build(complete, "quick")
    assert (complete / site.SITE / "index.html").read_text() == "# Start\n"


def test_failed_build_leaves_the_last_site(complete, monkeypatch):
    site.build(complete, "quick")
    monkeypatch.undo()  # the true scorecard and Jupyter Book, which find nothing here
    with pytest.raises(site.SiteError, match="the scorecard is not written:"):
        site.build(complete, "quick")
    monkeypatch.setattr(site.notebooks, "write", lambda root, pages: [])
    monkeypatch.setattr(site.figure_archive, "write", lambda root, pages: [])
    monkeypatch.setitem(site.GENERATED, "scorecard", lambda root: "# Scorecard\n")
    (complete / "book/intro.md").write_text("# Begin\n")
    (complete / "_config.yml").write_text("nonsense: [")
    with pytest.raises(site.SiteError, match="jupyter-book failed"):
        site.build(complete, "quick")
    assert (complete / site.SITE / "index.html").read_text() == "# Start\n"
    assert site.reason(complete) is not None


def test_rendering_is_continued_where_only_pages_changed(complete):
    kept = complete / "_build/next/_build/html/kept"

    def rendered_anew() -> bool:
        site.build(complete, "quick")
        anew = not kept.exists()
        kept.touch()
        return anew

    assert rendered_anew()
    (complete / "book/intro.md").write_text("# Begin\n")
    assert not rendered_anew()
    assert (complete / site.SITE / "index.html").read_text() == "# Begin\n"
    (complete / "_config.yml").write_text("title: A book\n")
    assert rendered_anew()


def test_rendering_that_did_not_end_well_is_not_continued(complete, monkeypatch):
    site.build(complete, "quick")
    kept = complete / "_build/next/_build/html/kept"
    kept.touch()
    render = site._run_jupyter_book

    def killed(root: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "_run_jupyter_book", killed)
    with pytest.raises(KeyboardInterrupt):
        site.build(complete, "quick")
    monkeypatch.setattr(site, "_run_jupyter_book", render)
    site.build(complete, "quick")
    assert not kept.exists()


def test_site_killed_between_its_two_renames_comes_back(complete):
    site.build(complete, "quick")
    (complete / site.SITE).rename(complete / "_build/previous")
    assert site.reason(complete) is None
    assert (complete / site.SITE / "index.html").exists()


def test_complaints_are_the_warnings_of_the_log():
    log = "reading\nbook/a.md:3: WARNING: bad\nbook/a.md:3: WARNING: bad\nwriting\n"
    assert site.complaints(log) == "book/a.md:3: WARNING: bad"
    assert site.complaints("one\ntwo") == "one\ntwo"
