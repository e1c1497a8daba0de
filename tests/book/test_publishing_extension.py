"""Addresses of the repository and of the site: in a small book, with and without them."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from companion.build import site

ROOT = Path(__file__).resolve().parents[2]
CONFIG = f"""\
title: A book
only_build_toc_files: true
execute: {{execute_notebooks: "off"}}
parse: {{myst_enable_extensions: [dollarmath]}}
repository: {{url: "%s", branch: main}}
html: {{baseurl: "%s"}}
sphinx:
  local_extensions: {{publishing: {ROOT / "book" / "_ext"}}}
"""
TEXT = "# First & best\n\nIt <says> one thing. Of $x$ it says another.\n"
REPOSITORY = "https://github.com/Someone/a-book"


class Head(HTMLParser):
    def __init__(self, path: Path):
        super().__init__()
        self.meta: dict[str, str] = {}
        self.links: list[str] = []
        self.base = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "meta" and "content" in found:
            self.meta[found.get("property") or found.get("name") or ""] = found["content"]
        if tag == "base":
            self.base = found["href"]
        if "href" in found:
            self.links.append(found["href"])


def build(folder, repository="", base=""):
    (folder / "book").mkdir()
    (folder / "book" / "intro.md").write_text(TEXT)
    (folder / "_config.yml").write_text(CONFIG % (repository, base))
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/intro\n")
    done = site.jupyter_book(folder, "-W")
    return done, folder / "_build" / "html"


def test_without_an_address_the_site_names_none(tmp_path):
    done, html = build(tmp_path)
    assert done.returncode == 0, done.stdout
    page, lost = Head(html / "book" / "intro.html"), Head(html / "404.html")
    assert page.meta["description"] == page.meta["og:description"] == "It <says> one thing."
    assert page.meta["og:title"] == "First & best"
    assert {"og:url", "og:image", "twitter:card"} & page.meta.keys() == set()
    assert [link for link in page.links if link.startswith("http")] == []
    assert not (html / "sitemap.xml").exists()
    assert lost.base is None
    assert lost.links == ["book/intro.html"]


def test_with_an_address_there_are_buttons_a_sitemap_and_a_picture(tmp_path):
    done, html = build(tmp_path, REPOSITORY)
    assert done.returncode == 0, done.stdout
    page = Head(html / "book" / "intro.html")
    address = "https://someone.github.io/a-book/"
    assert REPOSITORY in page.links
    assert f"{REPOSITORY}/edit/main/book/intro.md" in page.links
    assert any(
        link.startswith(f"{REPOSITORY}/issues/new?template=error.yml") for link in page.links
    )
    assert page.meta["og:url"] == f"{address}book/intro.html"
    assert page.meta["og:image"] == f"{address}_static/social.png"
    assert f"{address}book/intro.html" in page.links  # canonical
    listed = ElementTree.parse(html / "sitemap.xml").getroot()
    assert [place.text for place in listed.iter() if place.tag.endswith("loc")] == [
        f"{address}book/intro.html"
    ]
    assert Head(html / "404.html").base == "/a-book/"
    # what is generated has no source to edit
    assert not any("/edit/" in link for link in Head(html / "genindex.html").links)


def test_the_site_may_be_read_elsewhere(tmp_path):
    done, html = build(tmp_path, REPOSITORY, "https://book.example.org")
    assert done.returncode == 0, done.stdout
    page = Head(html / "book" / "intro.html")
    assert page.meta["og:url"] == "https://book.example.org/book/intro.html"
    assert Head(html / "404.html").base == "/"


@pytest.mark.parametrize("address", ["github.com/someone/book", "git@github.com:someone/book"])
def test_an_address_that_is_none_is_refused(tmp_path, address):
    done, _ = build(tmp_path, address)
    assert done.returncode != 0
    assert "must begin with https://" in done.stdout
