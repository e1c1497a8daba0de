"""The whole book: reasons, order, side by side, what fails, what is killed, what stays."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from companion.build import book, freshness, site, times
from companion.build.book import Book
from companion.files import source_path

TOC = """\
format: jb-book
root: book/intro
chapters:
  - file: book/nb/3-a/inner
  - file: book/nb/3-a/page
"""
HEAD = "---\nkernelspec: {display_name: Python 3, language: python, name: python3}\n---\n# P\n"
CELL = "```{{code-cell}} ipython3\n{}\n```\n"
TOOK = times.Time(clock=3.0, processor=2.0)
GOOD = HEAD + CELL.format(':tags: [parameters]\n\nprofile = "quick"\nseed = 1')


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small book with a last good site; one of its two pages fails."""
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/intro.md").write_text("# Start\n")
    for page, text in {"page": GOOD, "inner": GOOD + CELL.format("1 / 0")}.items():
        source = source_path(tmp_path, f"3-a/{page}")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
    last = tmp_path / site.SITE / "index.html"
    last.parent.mkdir(parents=True)
    last.write_text("last good site")
    return tmp_path


def start(root: Path, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "companion.build"],
        cwd=root,
        env={**os.environ, "MPLCONFIGDIR": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_it_says_why_keeps_going_keeps_the_last_site_and_survives_a_kill(root):
    with start(root) as killed:
        assert "never executed" in killed.stdout.readline()
        killed.kill()
    assert killed.returncode == -signal.SIGKILL

    with start(root) as run:
        said, complaints = run.communicate()
    assert (run.returncode, complaints) == (1, "")
    assert "3-a/inner FAILED after" in said
    assert "ZeroDivisionError" in said
    assert "3-a/page executed in" in said or "3-a/page is up to date" in said
    assert "[2/2]" in said
    assert "Failed: page 3-a/inner." in said
    assert "The last good site is still _build/html/index.html" in said
    assert (root / site.SITE / "index.html").read_text() == "last good site"
    assert freshness.reason(root, "3-a/page", {"profile": "quick"}) is None


def test_interrupted_it_ends_at_once(root):
    with start(root, start_new_session=True) as run:
        assert "never executed" in run.stdout.readline()
        os.killpg(run.pid, signal.SIGINT)
        assert "Interrupted. What is finished stays." in run.communicate()[1]
    assert run.returncode == 130


@pytest.fixture
def ran(monkeypatch) -> list[tuple[str, ...]]:
    """What a book would run; nothing is."""
    found = []
    monkeypatch.setattr(Book, "_run", lambda self, *what: found.append(what) or (0, "", TOOK))
    monkeypatch.setattr(site, "build", lambda *what: found.append(("site",)))
    return found


def test_pages_in_their_order_then_the_site(root, ran, monkeypatch, capsys):
    monkeypatch.setattr(book, "EARLY", ("3-a/page",))
    assert Book(root, jobs=1).make()
    assert [what[0] for what in ran] == ["3-a/page", "3-a/inner", "site"]
    assert ran[0][1:] == ("--profile=quick", "--workers=1")
    assert times.load(root).keys() == {"3-a/page", "3-a/inner", times.SITE}
    assert times.load(root)["3-a/page"] == TOOK
    assert "The site is _build/html/index.html" in capsys.readouterr().out


def test_a_page_with_a_new_text_is_not_executed(root, monkeypatch, capsys):
    source_path(root, "3-a/inner").write_text(GOOD)
    with start(root) as first:
        assert "[2/2]" in first.communicate()[0]  # executed; of the rest there is no site
    source_path(root, "3-a/page").write_text(GOOD.replace("# P", "# A better title"))
    monkeypatch.setattr(Book, "_run", lambda self, *what: pytest.fail(f"executes {what}"))
    monkeypatch.setattr(site, "build", lambda *what: None)
    assert Book(root).make()
    said = capsys.readouterr().out
    assert "[1/2] 3-a/inner is up to date" in said
    assert "[2/2] 3-a/page has its new text; its code is what it was" in said
    published = freshness.product_path(root, "3-a/page", "ipynb").read_text()
    assert "# A better title" in published
    assert "3-a/page" in times.load(root)  # what it took when it was executed


def test_quick_pages_run_side_by_side_and_those_of_the_papers_alone(root, monkeypatch):
    together = threading.Barrier(2, timeout=600)  # when to give up
    monkeypatch.setattr(Book, "_run", lambda self, *what: (1, str(together.wait()), TOOK))
    monkeypatch.setattr(site, "build", lambda *what: pytest.fail("a page failed"))
    assert not Book(root).make()  # neither page ends before the other has begun
    assert Book(root, profile="paper", jobs=2).jobs == 1


def test_bad_arguments(capsys):
    with pytest.raises(SystemExit):
        book.main(["--jobs", "0"])
    assert "--jobs must be at least 1, got 0" in capsys.readouterr().err
