"""The built site as files: nothing left unrendered, every link leads somewhere, nothing fetched.

Needs ``make book``; run by ``make check``.
"""

import functools
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from companion.build import site

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / site.SITE
PAGES = [f"{entry}.html" for entry in site.toc_entries(ROOT)]
UNRENDERED = [
    "```{", ":::", "{prf:", "{eq}", "{glue:", "{ref}", "{numref}", "{cite", "{doc}", "{py:",
    "{exercise", "{solution", "{math}", "{download}", "{dropdown}", "|}", "%%",
    "Traceback (most recent", "papermill-error", "An Exception was encountered",
]  # fmt: skip

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
UNSEEN = {"script", "style", "code", "pre", "svg", "template"}

pytestmark = pytest.mark.site
page = pytest.mark.parametrize("name", PAGES)


class BuiltPage(HTMLParser):
    """One HTML file.

    Attributes: ``ids``, ``links`` (of ``a``), ``loads`` (what the browser fetches by itself),
    ``images`` (their attributes), ``text`` (of the article, without code and formulas), and
    ``formulas`` (how many there are).
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.formulas = 0
        self._text: list[str] = []
        self._open: list[tuple[str, bool, bool]] = []  # tag, in the article, hidden
        self.feed(path.read_text(encoding="utf-8"))

    @property
    def text(self) -> str:
        return "".join(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        self.ids |= {value for name in ("id", "name") if (value := attributes.get(name))}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"] or "")
        if tag in LOADS and attributes.get(LOADS[tag]):
            self.loads.append(attributes[LOADS[tag]] or "")
        if tag == "img":
            self.images.append(attributes)
        is_formula = "math" in classes
        self.formulas += is_formula
        if tag not in VOID:
            inside, hidden = self._state()
            self._open.append(
                (tag, inside or tag == "article", hidden or is_formula or tag in UNSEEN)
            )

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            if self._open.pop()[0] == tag:
                return

    def handle_data(self, data: str) -> None:
        inside, hidden = self._state()
        if inside and not hidden:
            self._text.append(data)

    def _state(self) -> tuple[bool, bool]:
        return self._open[-1][1:] if self._open else (False, False)


@functools.cache
def built(path: Path) -> BuiltPage:
    return BuiltPage(path)


def all_files() -> list[Path]:
    # Not the theme's own templates, which it leaves among its static files.
    return sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def test_the_site_is_there_and_is_todays():
    assert SITE.is_dir(), "run make book first"
    assert site.reason(ROOT) is None
    assert (SITE / "index.html").is_file()


@page
def test_nothing_is_left_unrendered(name):
    text = built(SITE / name).text
    assert text.strip()
    assert [mark for mark in UNRENDERED if mark in text] == []
    assert "$" not in text, text[max(0, text.find("$") - 80) :][:160]


def test_pages_have_the_number_of_their_chapter_and_their_place_in_it():
    """As the thesis counts: chapter 3 is private policy evaluation, its first page is 3.1."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    for number, chapter in enumerate(toc["parts"][0]["chapters"][1:], start=2):
        pages = [chapter["file"], *(section["file"] for section in chapter["sections"])]
        for place, file in enumerate(pages):
            wanted = f"{number}." if place == 0 else f"{number}.{place}."
            html = (SITE / f"{file}.html").read_text(encoding="utf-8")
            found = re.search(r'<h1><span class="section-number">([\d.]+) </span>', html)
            assert found is not None, file
            assert found[1] == wanted, file


@page
def test_every_image_has_alternative_text(name):
    images = built(SITE / name).images
    assert [image.get("src") for image in images if not (image.get("alt") or "").strip()] == []
    unhelpful = {"image", "figure", "png", "svg"}
    assert [i["src"] for i in images if Path(i["alt"]).stem.lower() in unhelpful] == []


def test_every_internal_link_leads_somewhere():
    broken = []
    for path in all_files():
        for link in built(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file() or not _has(target, unquote(parts.fragment)):
                broken.append((str(path.relative_to(SITE)), link))
    assert broken == []


def _has(target: Path, fragment: str) -> bool:
    return not fragment or target.suffix != ".html" or fragment in built(target).ids


def test_nothing_is_loaded_from_elsewhere():
    loads = {
        (str(path.relative_to(SITE)), load)
        for path in all_files()
        for load in built(path).loads
        if load.startswith(("http:", "https:", "//"))
    }
    assert loads == set()


def test_everything_loaded_is_there():
    missing = {
        (str(path.relative_to(SITE)), load)
        for path in all_files()
        for load in built(path).loads
        if not load.startswith(("data:", "#"))
        and not (path.parent / unquote(urlsplit(load).path)).is_file()
    }
    assert missing == set()


def test_the_site_names_no_path_of_the_machine_that_built_it():
    place = str(ROOT).encode()
    texts = (p for p in SITE.rglob("*") if p.suffix in {".html", ".js", ".ipynb", ".md", ".txt"})
    assert [str(p.relative_to(SITE)) for p in texts if place in p.read_bytes()] == []
