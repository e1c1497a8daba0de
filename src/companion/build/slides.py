r"""Slides from Markdown, with the figures and numbers of the executed pages: ``make slides``.

A deck is a file ``book/slides/NAME.md``. It begins with a block that says of which chapter it is::

    ---
    title: Private policy evaluation
    question: How can the values of a policy be published without giving away the patients?
    chapter: 3-policy-evaluation
    ---

and goes on with slides, separated by lines ``---``::

    ## Noise in proportion to what one trajectory moves

    ![Two curves over the batch size.](figure:3-policy-evaluation/dp-lsw#psi-over-k)

    The bound fails by a factor of {evidence}`thesis:3.17 largest_exact_over_printed ,.0f`.

    Note: 4 minutes. What to say, and what students ask.

Every slide has a title that is a sentence, and notes that begin with its minutes. The text is
Markdown with formulas between dollars. What it takes of the executed pages:

================================  ==================================================================
``figure:PAGE#NAME``              as the address of an image: a figure of the page, with a link to
                                  it; of ``NAME-narrow`` the panels stand one below the other
``explorer:PAGE#NAME``            as the address of an image: an explorer that the page holds
``page:PAGE``                     as the address of a link: the page
role ``number``                   ``PAGE NAME``: a number that the page has handed over
role ``evidence``                 ``CLAIM NAME FORMAT``: a number of a claim, as on pages
role ``verdict``                  ``CLAIM``: its verdict, with a link to the check
================================  ==================================================================

A title that ends in ``{side}`` sets the text beside the figure. What no page has is a
:class:`SlidesError`. The decks stand in ``slides`` of the site, and use its MathJax, its style
sheet ``slides.css``, and reveal.js, a copy of which lies in ``book/_static/vendor``. They open
nothing from outside. The key S opens the speaker's view; with ``?print-pdf`` a deck can be printed.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from companion import claims
from companion.build.executed import Executed, NotThereError
from companion.files import write_atomic

#: Below the repository and below the site.
SOURCES, PLACE = Path("book/slides"), Path("slides")

_FRONT = re.compile(r"---\n(.*?)\n---\n(.*)", re.DOTALL)
_SLIDE = re.compile(r"## (?P<title>.+?)(?P<side> \{side\})?\n(?P<text>.*)", re.DOTALL)
_NOTE = re.compile(r"^Note: (?P<minutes>\d+) minutes?\.\s+(?=\S)", re.MULTILINE)
_ROLE = re.compile(r"\{(\w+)\}`([^`]+)`")
_FIELDS = ("title", "question", "chapter")
#: A paragraph cannot hold an explorer.
_ALONE = re.compile(r'<p>(<div class="explorer">.*?</small></div>)</p>', re.DOTALL)
#: What a page loads for its explorers.
_LOADED = re.compile(r'(?:src|href)="[./]*(_static/(?:vendor/uplot|explorers)/[^"]+)"')


class SlidesError(Exception):
    """A deck cannot be made; the message is for the writer's terminal."""


@dataclass(frozen=True)
class Slide:
    """One slide: its title, text and notes in Markdown, how long it takes, how it is laid out."""

    title: str
    text: str
    notes: str
    minutes: int
    side: bool = False


@dataclass(frozen=True)
class Deck:
    """A file of slides; ``name`` is that of the file, ``chapter`` that of a folder of pages."""

    name: str
    title: str
    question: str
    chapter: str
    slides: tuple[Slide, ...]

    @property
    def minutes(self) -> int:
        """How long the whole deck takes."""
        return sum(slide.minutes for slide in self.slides)


def parse(name: str, text: str) -> Deck:
    """Read a deck; what is missing or malformed is a :class:`SlidesError` that names the slide."""
    front = _FRONT.match(text)
    if front is None:
        raise SlidesError(f"{name}: a deck begins with a block between two lines ---")
    fields = yaml.safe_load(front[1])
    if not isinstance(fields, dict) or sorted(fields) != sorted(_FIELDS):
        raise SlidesError(f"{name}: the first block needs {', '.join(_FIELDS)} and nothing else")
    parts = re.split(r"^---$", front[2], flags=re.MULTILINE)
    slides = tuple(_slide(f"{name}, slide {n}", part.strip()) for n, part in enumerate(parts, 2))
    return Deck(name, fields["title"], fields["question"], fields["chapter"], slides)


def _slide(where: str, text: str) -> Slide:
    slide, note = _SLIDE.match(text), _NOTE.search(text)
    if slide is None:
        raise SlidesError(f"{where}: it begins with {text[:40]!r}, not with a title: ## ...")
    if note is None:
        raise SlidesError(f"{where} ({slide['title']}): no notes that begin 'Note: 3 minutes. ...'")
    shown = text[slide.start("text") : note.start()].strip()
    notes, minutes = text[note.end() :].strip(), int(note["minutes"])
    return Slide(slide["title"], shown, notes, minutes, bool(slide["side"]))


def decks(root: Path) -> list[Deck]:
    """Every deck of the repository, in the order of the files' names."""
    paths = sorted((root / SOURCES).glob("*.md"))
    return [parse(path.stem, path.read_text(encoding="utf-8")) for path in paths]


class _Writer:
    """Markdown of slides as HTML, with what the executed pages have."""

    def __init__(self, executed: Executed, site: Path) -> None:
        self.executed = executed
        self.site = site
        self.figures: dict[str, str] = {}
        self.loaded: dict[str, None] = {}  # what explorers need, in order
        self.markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.markdown.use(dollarmath_plugin, renderer=_formula, allow_digits=False)
        self.markdown.add_render_rule("image", lambda _, tokens, n, *__: self._image(tokens[n]))
        self.markdown.core.ruler.push("links", self._links)

    def render(self, text: str) -> str:
        """Markdown as HTML."""
        return _ALONE.sub(r"\1", str(self.markdown.render(self._with_numbers(text))))

    def line(self, text: str) -> str:
        """One line of Markdown as HTML without a paragraph."""
        return str(self.markdown.renderInline(self._with_numbers(text)))

    def _with_numbers(self, text: str) -> str:
        return _ROLE.sub(lambda found: self._role(found[1], found[2].split()), text)

    def _role(self, kind: str, words: Sequence[str]) -> str:
        if kind == "number":
            return self.executed.number(*words)
        if kind == "evidence":
            return self.executed.evidence(*words)
        if kind == "verdict":
            claim = self.executed.claim(*words)
            fault = claim.severity if claim.severity != "condition" else ""
            said = claims.verdict_text(claim.expected, fault)
            return f"[{said}](page:{claim.page}#{claims.anchor(claim.id)})"
        raise NotThereError(f"there is no role {kind}")

    def _links(self, state: Any) -> None:
        """Let the links of ``page:`` lead to the pages of the site."""
        for token in state.tokens:
            for child in token.children or ():
                if child.type == "link_open" and child.attrs["href"].startswith("page:"):
                    page, mark, part = child.attrs["href"].removeprefix("page:").partition("#")
                    self.executed.page(page)
                    child.attrs["href"] = _address(page) + mark + part

    def _image(self, token: Token) -> str:
        """Write a figure of a page, as an image that links to it."""
        source, alt = str(token.attrs["src"]), token.content
        kind, _, place = source.partition(":")
        page, _, name = place.partition("#")
        if kind == "explorer" and name and alt:
            return self._explorer(page, name)
        if kind != "figure" or not name or not alt:
            raise NotThereError(f"an image is ![what it shows](figure:PAGE#NAME), not {source}")
        path = f"figures/{page}/{name}.svg"
        self.figures[path] = self.executed.figure(page, name)
        title = self.line(self.executed.page(page).title)
        return (
            f'<img src="{path}" alt="{html.escape(alt)}"><br>'
            f'<small>Figure of the page <a href="{_address(page)}">{title}</a></small>'
        )

    def _explorer(self, page: str, name: str) -> str:
        """Copy an explorer from its page in the site, and note what it loads."""
        path = self.site / "book" / "nb" / f"{page}.html"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = re.search(rf'<div data-explorer="{name}".*?</noscript></div>', text, re.DOTALL)
        if found is None:
            raise NotThereError(f"the site's page {page} has no explorer {name}")
        self.loaded |= dict.fromkeys(_LOADED.findall(text))
        title = self.line(self.executed.page(page).title)
        return (
            f'<div class="explorer">{found[0]}'
            f'<small>Explorer of the page <a href="{_address(page)}">{title}</a></small></div>'
        )


def _formula(text: str, options: dict[str, bool]) -> str:
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return left + html.escape(text) + right


def _address(page: str) -> str:
    return f"../book/nb/{page}.html"


def write(root: Path, site: Path) -> list[Path]:
    """Write every deck and its figures below the site; the decks' files are returned.

    What a deck wants and no executed page has is a :class:`SlidesError` that names the slide.
    """
    written = decks(root)
    if not written:
        return []
    executed = Executed(root)
    macros = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    settings = {"tex": macros["sphinx"]["config"]["mathjax3_config"]["tex"]}
    made = []
    for deck in written:
        writer = _Writer(executed, site)
        sections = [_opening(deck)]
        for number, slide in enumerate(deck.slides, 2):
            try:
                sections.append(_section(writer, slide))
            except NotThereError as error:
                where = f"{SOURCES / deck.name}.md, slide {number} ({slide.title})"
                raise SlidesError(f"{where}: {error}") from None
        page = _PAGE.format(
            title=html.escape(deck.title),
            slides="\n".join(sections),
            mathjax=json.dumps(settings),
            explorers="\n".join(map(_load, writer.loaded)),
        )
        for name, drawn in writer.figures.items():
            write_atomic(site / PLACE / name, drawn)
        made.append(site / PLACE / f"{deck.name}.html")
        write_atomic(made[-1], page)
    return made


def _load(name: str) -> str:
    if ".css" in name:
        return f'<link rel="stylesheet" href="../{name}">'
    return f'<script defer src="../{name}"></script>'


def _opening(deck: Deck) -> str:
    chapter = f"../book/{deck.chapter}.html"
    return f"""<section class="opening">
<h1>{html.escape(deck.title)}</h1>
<p>{html.escape(deck.question)}</p>
<p><small><a href="{chapter}">The chapter</a> · {len(deck.slides) + 1} slides, about {deck.minutes}
minutes · key S: the speaker's notes · <a href="?print-pdf">to print</a></small></p>
<aside class="notes"><p>{deck.minutes} minutes in all. Figures and numbers are those of the book's
executed pages; below each figure is the link to its page.</p></aside>
</section>"""


def _section(writer: _Writer, slide: Slide) -> str:
    kinds = ["side"] if slide.side else []
    kinds += ["figure"] if "](figure:" in slide.text else []
    return f"""<section class="{" ".join(kinds)}">
<h2>{writer.line(slide.title)}</h2>
<div>{writer.render(slide.text)}</div>
<aside class="notes"><p><b>{slide.minutes} min.</b></p>{writer.render(slide.notes)}</aside>
</section>"""


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../_static/vendor/reveal/reset.css">
<link rel="stylesheet" href="../_static/vendor/reveal/reveal.css">
<link rel="stylesheet" href="../_static/slides.css">
<script>window.MathJax = {mathjax};</script>
<script defer src="../_static/mathjax/tex-chtml.js"></script>
<script defer src="../_static/vendor/reveal/reveal.js"></script>
<script defer src="../_static/vendor/reveal/notes.js"></script>
{explorers}
<script defer src="../_static/slides.js"></script>
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
</body>
</html>
"""


def main() -> int:
    """Write the decks into the site that was built last; 1 if something is missing."""
    from companion.build.site import SITE  # which uses this module

    root = Path.cwd().resolve()
    if not (root / SITE / "index.html").is_file():
        print("no site yet: make book", file=sys.stderr)
        return 1
    try:
        made = write(root, root / SITE)
    except SlidesError as error:
        print(error, file=sys.stderr)
        return 1
    for path, deck in zip(made, decks(root), strict=True):
        print(f"{path.relative_to(root)}: {len(deck.slides) + 1} slides, {deck.minutes} minutes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
