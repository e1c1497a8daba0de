"""Sphinx extension: what a published site has beside its pages.

The address of the repository stands in one place, ``repository: url`` in ``_config.yml``. With it,
every page has buttons to the repository, to an edit of its source and to the form that reports an
error. Where the site is read follows from it (GitHub Pages; anywhere else: ``html: baseurl``), and
with that address the site has a sitemap, canonical links and a picture for those who share a link.
Without either, all of this is absent and the site is complete: it never names an address that it
was not given. A description of each page and a page for dead links are there in both cases.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

#: Beside the pages: 1200 by 630 pixels, as those ask for who show it.
PICTURE = "_static/social.png"
_LONGEST = 200
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
#: Pages that are executed, and where their sources are.
_EXECUTED, _SOURCES = "book/nb/", "notebooks/"


def read_addresses(app: Sphinx, config: Config) -> None:
    """Where the site is read, if nobody has said it: where GitHub Pages puts the repository."""
    url = _repository(config)
    if url and urlsplit(url).scheme != "https":
        raise ExtensionError(f"_config.yml: repository url must begin with https://, got {url!r}")
    if url and not config.html_baseurl:
        config.html_baseurl = pages_of(url)
    if config.html_baseurl and not config.html_baseurl.endswith("/"):
        config.html_baseurl += "/"


def pages_of(repository: str) -> str:
    """Return where GitHub Pages shows a repository; empty if it is not one of GitHub's.

    >>> pages_of("https://github.com/Someone/a-book")
    'https://someone.github.io/a-book/'
    """
    parts = urlsplit(repository)
    names = parts.path.strip("/").removesuffix(".git").split("/")
    if parts.netloc != "github.com" or len(names) != 2:
        return ""
    owner, name = names[0].lower(), names[1]
    return f"https://{owner}.github.io/" + (
        "" if name.lower() == f"{owner}.github.io" else f"{name}/"
    )


def _repository(config: Config) -> str:
    return str(config.html_theme_options.get("repository_url") or "").strip().removesuffix("/")


def add_buttons(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Put the buttons to the repository in the header, if there is one."""
    url = _repository(app.config)
    if not url or "header_buttons" not in context:
        return
    context["header_buttons"].append(
        {
            "type": "group",
            "tooltip": "Repository, error reports, edits",
            "icon": "fas fa-code-branch",
            "label": "repository-buttons",
            "buttons": [
                {"type": "link", "icon": icon, "url": link, "text": text, "tooltip": tooltip}
                for text, tooltip, icon, link in _links(app, url, pagename)
            ],
        }
    )


def _links(app: Sphinx, url: str, page: str) -> Iterator[tuple[str, str, str, str]]:
    """Text, tooltip, icon and address of each button of a page."""
    yield "Repository", "The source of this book", "fas fa-code-branch", url
    report = f"{url}/issues/new?template=error.yml&title={quote(f'Error in {page}', safe='')}"
    yield "Report an error", "Say what is wrong on this page", "fas fa-flag", report
    source = source_of(page)
    if Path(app.srcdir, source).is_file():
        branch = app.config.html_theme_options.get("repository_branch") or "main"
        edit = f"{url}/edit/{quote(branch)}/{quote(source)}"
        yield "Edit", "Suggest a change of this page", "fas fa-pencil-alt", edit


def source_of(page: str) -> str:
    """Return the file that an author writes for a page of the site.

    >>> source_of("book/nb/3-policy-evaluation/dp-lsw"), source_of("book/intro")
    ('notebooks/3-policy-evaluation/dp-lsw.md', 'book/intro.md')
    """
    if page.startswith(_EXECUTED):
        return f"{page.replace(_EXECUTED, _SOURCES, 1)}.md"
    return f"{page}.md"


def add_description(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Say in the page's head what it is about, in the words of Open Graph."""
    if doctree is None:
        return
    title = html.unescape(re.sub(r"<[^>]*>", "", context.get("title", "")))
    description = describe(doctree) or app.config.html_title
    tags = {
        "og:type": "article",
        "og:site_name": app.config.html_title or app.config.project,
        "og:title": title,
        "og:description": description,
    }
    base = app.config.html_baseurl
    if base:
        tags["og:url"] = f"{base}{pagename}.html"
        tags["og:image"] = f"{base}{PICTURE}"
        tags["og:image:alt"] = app.config.html_title
    lines = [f'<meta name="description" content="{html.escape(description)}" />']
    lines += [
        f'<meta property="{name}" content="{html.escape(value)}" />' for name, value in tags.items()
    ]
    if base:
        lines.append('<meta name="twitter:card" content="summary_large_image" />')
    context["metatags"] = context.get("metatags", "") + "\n" + "\n".join(lines)


def describe(doctree: nodes.Node) -> str:
    """Return the first sentences of a page that can be said without formulas."""
    for paragraph in doctree.findall(nodes.paragraph):
        if _is_aside(paragraph):
            continue
        text = "".join(
            "$" if isinstance(part, nodes.math) else part.astext()
            for part in paragraph.findall(lambda n: isinstance(n, nodes.Text | nodes.math))
            if not isinstance(part.parent, nodes.math)
        )
        said = ""
        for sentence in _SENTENCE.split(text.replace("\n", " ").strip()):
            if "$" in sentence or len(said) + len(sentence) >= _LONGEST:
                break
            said = f"{said} {sentence}".strip()
        if said:
            return said
    return ""


def _is_aside(node: nodes.Node) -> bool:
    """Whether it stands in a box, a figure or a list: no opening sentence."""
    parent = node.parent
    while parent is not None:
        if not isinstance(parent, nodes.section | nodes.document):
            return True
        parent = parent.parent
    return False


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """List all pages for search engines, if it is known where they are."""
    base = app.config.html_baseurl
    if exception or app.builder.format != "html" or not base:
        return
    pages = sorted(app.env.found_docs)
    lines = [f"  <url><loc>{escape(base + quote(page))}.html</loc></url>" for page in pages]
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    opening = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    text = "\n".join([head, opening, *lines, "</urlset>", ""])
    Path(app.outdir, "sitemap.xml").write_text(text, encoding="utf-8")


def write_not_found(app: Sphinx, exception: Exception | None) -> None:
    """Write the page for dead links, which a server shows at any depth."""
    if exception or app.builder.format != "html":
        return
    base = urlsplit(app.config.html_baseurl).path
    text = _NOT_FOUND.format(
        base=f'<base href="{html.escape(base)}">\n' if base else "",
        title=html.escape(app.config.html_title or app.config.project),
        root=app.config.root_doc,
    )
    Path(app.outdir, "404.html").write_text(text, encoding="utf-8")


_NOT_FOUND = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
{base}<title>No such page</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.1rem/1.5 system-ui, sans-serif }}
main {{ max-width: 36rem; margin: 15vh auto; padding: 0 1rem }}
input, button {{ font: inherit }}
</style>
</head>
<body>
<main>
<h1>No such page</h1>
<p>The book has no page at this address. Pages keep their names between versions if they can;
this one may have been renamed.</p>
<form action="search.html"><label>Search the book: <input type="search" name="q"></label>
<button>Search</button></form>
<p><a href="{root}.html">{title}</a></p>
</main>
</body>
</html>
"""


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hooks."""
    app.connect("config-inited", read_addresses)
    app.connect("html-page-context", add_buttons, priority=600)  # after the theme's own
    app.connect("html-page-context", add_description, priority=600)
    app.connect("build-finished", write_sitemap)
    app.connect("build-finished", write_not_found)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
