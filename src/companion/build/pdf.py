"""The book as a PDF through LaTeX: ``make pdf``.

Made from the executed pages below ``_build/pdf``, in four steps: :func:`write_sources` writes what
Jupyter Book reads, with tables and verdicts as text, and without the API and the pages that serve
the site only; Jupyter Book writes LaTeX, in which the extension ``printed`` has its say; XeLaTeX
sets it; and :func:`faults` reads what it complained of. A reference that leads nowhere, a missing
character, or a line that runs off the page is an error.

Needs :data:`TOOLS`, which are not Python packages; without them the message names
:data:`PACKAGES`. The title page says the day and the commit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from companion.build import freshness, notebooks, site
from companion.claims import ClaimError
from companion.files import write_atomic

PLACE = Path("_build/pdf")
NAME = "on-privacy-for-rl"
PRODUCT = PLACE / f"{NAME}.pdf"
#: What the title page of the product says.
EDITION = PLACE / "edition.txt"
#: How the edition ends where files are not as they were committed.
CHANGED = ", with changes"
#: How it ends where pages were executed before something changed.
OLD_PAGES = ", pages of earlier runs"
#: Programs that make it.
TOOLS = ("xelatex", "latexmk", "rsvg-convert")
#: Packages of Debian that hold them, and the LaTeX packages and fonts of the book.
PACKAGES = (
    "texlive-xetex texlive-latex-extra texlive-fonts-recommended fonts-lmodern "
    "fonts-freefont-otf fonts-dejavu-core latexmk librsvg2-bin"
)
#: Pages that serve the site only.
LEFT_OUT = (
    "book/api/",
    "book/nb/house",
    "book/nb/take-away",
    "book/nb/teach",
    "book/accessibility",
)
#: What a line may run over the margin, in points.
MOST_OVER = 20.0

_TEX = PLACE / "_build" / "latex"
_LOG = PLACE / "jupyter-book.log"
_OF_THE_API = ("autodoc", "autosummary", "napoleon", "viewcode")
_OF_THE_SITE = ("docstrings", "offline_site", "publishing", "answers")
# sphinx-jupyterbook-latex asks for a package of half a gigabyte, and uses one command of it.
_BBM = "\\ProvidesPackage{bbm}\n\\newcommand{\\mathbbm}[1]{\\mathbb{#1}}\n"
_FIRST_PAGES = r"""\vspace*{\fill}
\begin{printedbox}{note}{On paper}
These are the pages of the site, from one execution: figures, numbers and verdicts are those of the
commit on the title page. The cells that the site folds (imports, checks, drawings), its explorers
and the description of the package are not printed; the site and the notebooks have them. Proofs and
solutions, which the site folds too, stand between two lines.

Text and figures: CC BY 4.0. Code: BSD-3-Clause.
\end{printedbox}\thispagestyle{empty}\clearpage
\sphinxtableofcontents
\chapter*{In short}\markboth{In short}{}"""

_COMPLAINTS = re.compile(
    r"^(?:LaTeX|Package hyperref) Warning: .*undefined.*$|^Missing character: .*$", re.MULTILINE
)
_OVERFULL = re.compile(r"^Overfull \\hbox \(([\d.]+)pt too wide\).*$", re.MULTILINE)
_VERDICT = re.compile(r'<span class="verdict ([\w-]+)[^>]*>([^<]*)</span>')
_CHAPTER = re.compile(
    r'<details class="scorecard-chapter"><summary>(.*?)\n<span class="tiles".*?</summary>\n(.*?)'
    r"</details>\n",
    re.DOTALL,
)


class PdfError(Exception):
    """No PDF; the message is for the terminal."""


# -- pages for paper --------------------------------------------------------------------


class _Table(HTMLParser):
    """Rows of the first table of a text, each a list of cells; ``heads`` are rows of heads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.heads = 0
        self._cell: list[str] | None = None
        self._span = 1
        self._in_head = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self.rows.append([])
            self.heads += self._in_head
        elif tag in ("td", "th"):
            self._cell, self._span = [], int(dict(attrs).get("colspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._in_head = False
        elif tag in ("td", "th") and self._cell is not None:
            text = " ".join("".join(self._cell).split())
            self.rows[-1] += [text] + [""] * (self._span - 1)
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def table(text: str) -> str:
    """A table in HTML, as pandas writes it, as a table of Markdown.

    >>> print(table("<table><thead><tr><th></th><th>a|b</th></tr></thead>"
    ...     "<tbody><tr><th>x</th><td>1</td></tr></tbody></table>"))
    | &nbsp; | a\\|b |
    |---|---|
    | x | 1 |
    """
    found = _Table(text)
    width = max(map(len, found.rows))
    rows = [row + [""] * (width - len(row)) for row in found.rows]
    head = [" ".join(filter(None, column)) for column in zip(*rows[: found.heads], strict=True)]
    lines = [
        "| " + " | ".join(_escaped(cell) or "&nbsp;" for cell in row) + " |"
        for row in [head or [""] * width, *rows[found.heads :]]
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _escaped(text: str) -> str:
    return re.sub(r"([|\\`*_$<\[\]{}~^#])", r"\\\1", text)


def badge(page: str, markdown: str) -> str:
    """A claim's badge: its Markdown, with the verdict in the looks that its HTML has."""
    found = _VERDICT.search(page)
    if found is None:
        raise PdfError(f"a claim's badge without a verdict: {markdown}")
    return markdown.replace(f"\n{found[2]}: ", f"\n{_VERDICT.sub(_role, found[0])} ", 1)


def _role(found: re.Match[str]) -> str:
    return f"{{shown-verdict}}`{found[1]} {found[2]}`"


def printed(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """An executed page with its tables and badges as Markdown, and without provenance cards."""
    made = json.loads(json.dumps(notebook))
    for cell in made["cells"]:
        kept = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            shown = "".join(data.get("text/html", ""))
            if "provenance-card" in shown:
                continue
            if "claim-badge" in shown:
                markdown = badge(shown, "".join(data["text/markdown"]))
                data.clear()
                data["text/markdown"] = markdown
            elif "<table" in shown:
                data.clear()
                data["text/markdown"] = table(shown)
            kept.append(output)
        if "outputs" in cell:
            cell["outputs"] = kept
    return dict(made)


def scorecard(text: str) -> str:
    """The scorecard for paper: of each claim its name, its verdict, and the page that checks it."""
    text = re.sub(r"^Each square.*?below\.\s", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace('<div id="scorecard-filter"></div>', "")
    # What belongs to a claim stands indented below its name.
    text = re.sub(r"^    .*\n|^\n(?=    |  -)", "", text, flags=re.MULTILINE)
    text = _CHAPTER.sub(r"## \1\n\2", _VERDICT.sub(_role, text))
    return text.replace(":widths: 60 20 20\n", "")


# -- what Jupyter Book reads ------------------------------------------------------------


def contents(toc: Mapping[str, Any]) -> dict[str, Any]:
    """The table of contents without the pages that are left out."""
    made = dict(toc)
    for name in ("parts", "chapters", "sections"):
        if name in made:
            kept = (n for n in made[name] if not str(n.get("file", "")).startswith(LEFT_OUT))
            made[name] = [contents(node) for node in kept]
    return made


def configuration(config: Mapping[str, Any], macros: str, edition: str) -> dict[str, Any]:
    """The book's configuration, for LaTeX; ``edition`` stands below the title."""
    made = json.loads(json.dumps(config))
    sphinx = made["sphinx"]
    of_api = [f"sphinx.ext.{name}" for name in _OF_THE_API]
    sphinx["extra_extensions"] = [e for e in sphinx["extra_extensions"] if e not in of_api]
    for name in _OF_THE_SITE:
        sphinx["local_extensions"].pop(name)
    sphinx["local_extensions"]["printed"] = "book/_ext/"
    kept = {k: v for k, v in sphinx["config"].items() if not k.startswith(_OF_THE_API)}
    sphinx["config"] = kept | {
        "release": "",
        "version": "",
        "today": edition,
        "nb_mime_priority_overrides": [["latex", "image/svg+xml", 5]],
        "jblatex_load_imgconverter": False,
        "jblatex_show_tocs": False,
        "latex_additional_files": ["book/_ext/printed.sty"],
        "latex_domain_indices": False,
        "latex_show_urls": "no",
        "latex_table_style": ["booktabs", "nocolorrows"],
        "latex_elements": {
            "papersize": "a4paper",
            "pointsize": "10pt",
            "extraclassoptions": "openany,oneside",
            "figure_align": "H",
            "fncychap": "",
            "printindex": "",
            "releasename": "",
            "tableofcontents": _FIRST_PAGES,
            "preamble": "\\usepackage{printed}\n" + macros,
            "sphinxsetup": "hmargin={22mm,22mm}, vmargin={24mm,24mm}, verbatimwithframe=false, "
            "VerbatimColor={rgb}{0.96,0.96,0.97}",
        },
    }
    made["latex"] = {"latex_engine": "xelatex", "latex_documents": {"targetname": f"{NAME}.tex"}}
    return dict(made)


def write_sources(root: Path, edition: str) -> Path:
    """Write what Jupyter Book reads, below the place; the folder is returned.

    A page without an execution is a :class:`PdfError`.
    """
    missing = [p for p in site.pages(root) if not _executed(root, p).is_file()]
    if missing:
        raise PdfError(f"not executed yet: {', '.join(missing)}; run make book")
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    ignore = shutil.ignore_patterns("nb", "api", "__pycache__")
    shutil.copytree(root / "book", place / "book", ignore=ignore)
    shutil.copytree(root / "notebooks", place / "notebooks")  # links to them are words here
    toc = contents(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    write_atomic(place / "_toc.yml", yaml.safe_dump(toc, sort_keys=False))
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    macros = notebooks.macros_of(root).strip("$").replace(r"\newcommand", r"\providecommand")
    made = configuration(config, macros, edition)
    write_atomic(place / "_config.yml", yaml.safe_dump(made, sort_keys=False))
    for page in site.pages(root):
        path = _executed(root, page)
        notebook = printed(json.loads(path.read_text(encoding="utf-8")))
        write_atomic(place / path.relative_to(root), json.dumps(notebook, ensure_ascii=False))
    for path in (root / site.PAGES).rglob("*.claims.json"):
        write_atomic(place / path.relative_to(root), path.read_bytes())
    try:
        text = scorecard(site.GENERATED["scorecard"](root))
    except ClaimError as error:
        raise PdfError(f"the scorecard is not written:\n{error}") from None
    write_atomic(place / f"{site.PAGES}scorecard.md", text)
    return place


def _executed(root: Path, page: str) -> Path:
    return freshness.product_path(root, page, "ipynb")


def edition_of(root: Path) -> str:
    """Day and commit, as the title page has them; today, where there is no repository of Git."""
    commit = notebooks._git(root, "log", "-1", "--format=%cs %h")
    if not commit:
        return datetime.date.today().isoformat()
    day, name = commit.split()
    changed = notebooks._git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{day}, commit {name}" + (CHANGED if changed else "")


# -- LaTeX ------------------------------------------------------------------------------


def missing_tools() -> list[str]:
    """Programs that are not on this machine."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def build(root: Path, profile: str = "quick", *, stale: bool = False) -> Path:
    """Make the PDF, in place of the last one. What is missing or wrong is a :class:`PdfError`.

    A page without a valid execution with this profile is wrong too, unless ``stale``: then it is
    taken as it is, and the title page says so.
    """
    missing = missing_tools()
    if missing:
        raise PdfError(
            f"no PDF: {', '.join(missing)} not on this machine; "
            f"on Debian and Ubuntu: apt-get install {PACKAGES}"
        )
    edition, old = edition_of(root), site.stale(root, profile)
    if old and not stale:
        listed = "\n".join(old)
        raise PdfError(f"these pages have no valid execution: make book\n{listed}")
    if old:
        edition += OLD_PAGES
    place = write_sources(root, edition)
    done = site.jupyter_book(place, "--builder", "latex", "-W", "-n", "--keep-going")
    write_atomic(root / _LOG, done.stdout)
    if done.returncode:
        raise PdfError(f"Jupyter Book:\n{site.complaints(done.stdout)}\nAll of it: {_LOG}")
    write_atomic(root / _TEX / "bbm.sty", _BBM)
    typeset(root / _TEX, NAME)
    wrong = faults((root / _TEX / f"{NAME}.log").read_text(encoding="utf-8", errors="replace"))
    if wrong:
        raise PdfError("\n".join([*wrong, f"All of it: {_TEX / NAME}.log"]))
    shutil.copy(root / _TEX / f"{NAME}.pdf", root / PRODUCT)
    write_atomic(root / EDITION, edition)
    return root / PRODUCT


def typeset(folder: Path, name: str) -> None:
    """Run XeLaTeX as often as it takes."""
    command = ["latexmk", "-xelatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        text = done.stdout.decode(errors="replace")
        wrong = [line for line in text.splitlines() if line.startswith("!")][:5]
        raise PdfError("\n".join([*wrong, f"All of it: {folder / name}.log"]))


def faults(log: str) -> list[str]:
    """What a reader would meet, each once: dead references, missing characters, cut lines."""
    wrong = _COMPLAINTS.findall(log)
    wrong += [m[0] for m in _OVERFULL.finditer(log) if float(m[1]) > MOST_OVER]
    return list(dict.fromkeys(wrong))


def main(argv: Sequence[str] | None = None) -> int:
    """Make it, and say where it is and how long; 1 if that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build.pdf", description="Make the book as a PDF."
    )
    parser.add_argument(
        "--if-possible", action="store_true", help="without LaTeX say so, and succeed"
    )
    parser.add_argument("--profile", default="quick", help="with which the pages were executed")
    parser.add_argument(
        "--stale", action="store_true", help="take pages as they are, and say so on the title page"
    )
    wanted = parser.parse_args(argv)
    root = Path.cwd().resolve()
    try:
        path = build(root, wanted.profile, stale=wanted.stale)
    except PdfError as error:
        print(error, file=sys.stderr)
        return int(not wanted.if_possible or not missing_tools())
    log = (root / _TEX / f"{NAME}.log").read_text(encoding="utf-8", errors="replace")
    pages = "".join(re.findall(r"^Output written on .*\((\d+ pages?),", log, re.MULTILINE))
    print(f"{path.relative_to(root)}: {pages}, {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
