"""Markdown of the pages without Sphinx: for notebooks that are read in plain Jupyter.

A page is MyST Markdown: theorems, figures, exercises and citations are directives and roles, which
Jupyter shows as they stand. :func:`plain` writes them as Markdown that every program shows, with
the page's numbers in place. What a name stands for on the whole book, such as the title of a
theorem, :class:`Names` knows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from companion import claims, figures
from companion.build import freshness

_OPENING = re.compile(r"(:{3,}|`{3,})\{([\w:-]+)\} ?(.*)")
_OPTION = re.compile(r":([\w-]+):\s?(.*)")
_TARGET = re.compile(r"\(([\w.:-]+)\)=")
_ROLE = re.compile(r"\{([\w:-]+)\}`([^`]+)`")
#: The end of a formula that has a number, and a link to what has a label.
_EQUATION = re.compile(r"\$\$ \((\S+)\)")
_LABELLED = re.compile(r"\[([^\[\]]*)\]\(([\w-]+)\)")
#: A link to a page that is on the site only.
_ELSEWHERE = re.compile(r"\[([^\[\]]+)\]\((?!https?:)[^()\s]+\.md(?:#[^()\s]*)?\)")
_FIGURE = re.compile(r":+\{glue:figure\}.*\n(?::[\w-]+:.*\n)*?:name: (\S+)")
_NAMED = re.compile(r"(.*?)\s*<([^<>]+)>", re.DOTALL)
_BLOCKS = ("theorem", "lemma", "proposition", "corollary", "definition", "remark", "algorithm")
_BOXES = {"warning": "Warning", "important": "Important", "note": "Note", "tip": "Tip"}
_FOLDS = ("dropdown", "admonition")
_ENDS = ("exercise-end", "solution-end")
#: What is drawn or listed by the site only.
_LEFT_OUT = ("figure-of", "explorer", "tableofcontents", "bibliography", *_ENDS)


@dataclass(frozen=True)
class Names:
    """What labels and keys stand for.

    ``titles`` are those of theorems, exercises and other blocks by label, ``places`` the pages of
    labels, ``numbers`` those of figures and equations by label, as on the site, ``works`` author
    and year by key of the bibliography, ``ledger`` the claims, and ``evidence`` their numbers.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    works: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ledger: Mapping[str, claims.Claim] = field(default_factory=dict)
    evidence: Mapping[str, Mapping[str, claims.Number]] = field(default_factory=dict)


def names_of_book(root: Path, pages: Iterable[str]) -> Names:
    """Names of a book that has been executed."""
    titles: dict[str, str] = {}
    places: dict[str, str] = {}
    numbers: dict[str, str] = {}
    evidence: dict[str, Mapping[str, claims.Number]] = {}
    of_pages = page_numbers(root)
    for page in pages:
        text = (root / "notebooks" / f"{page}.md").read_text(encoding="utf-8")
        of_page = _titles(text.splitlines())
        titles |= of_page
        places |= dict.fromkeys([*of_page, *_TARGET.findall(text)], page)
        if page in of_pages:
            for pattern in (_EQUATION, _FIGURE):
                for place, label in enumerate(pattern.findall(text), 1):
                    numbers[label] = f"{of_pages[page]}.{place}"
        path = freshness.product_path(root, page, "claims.json")
        if path.is_file():
            evidence |= claims.evidence_in(path)
    ledger = claims.load(root / "book" / "claims.yml")
    works = _works(root / "book" / "references.bib")
    return Names(titles, places, numbers, works, ledger, evidence)


def page_numbers(root: Path) -> dict[str, str]:
    """Numbers of the pages that have one, such as 3.2 for ``3-policy-evaluation/dp-lsw``."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {
        section["file"].removeprefix("book/nb/"): f"{chapter}.{place}"
        for part in toc["parts"]
        if part.get("numbered")
        for chapter, opening in enumerate(part["chapters"], 1)
        for place, section in enumerate(opening.get("sections", ()), 1)
    }


def _titles(lines: list[str]) -> dict[str, str]:
    found = {}
    for number, line in enumerate(lines):
        opening = _OPENING.match(line)
        if not opening:
            continue
        for option in lines[number + 1 : number + 6]:
            known = _OPTION.match(option)
            if known and known[1] in ("label", "name"):
                found[known[2]] = _heading(opening[2], opening[3])
    return found


def _heading(kind: str, title: str) -> str:
    word = kind.rpartition(":")[2].removesuffix("-start").capitalize()
    return f"{word} ({title})" if title and kind != "glue:figure" else word


def _works(path: Path) -> dict[str, tuple[str, str]]:
    from pybtex.database import parse_file

    found = {}
    for key, entry in parse_file(str(path)).entries.items():
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        last = [" ".join(person.last_names).strip("{}") for person in people]
        who = f"{last[0]} et al." if len(last) > 2 else " and ".join(last)
        found[key] = (who or entry.fields.get("title", key), entry.fields.get("year", ""))
    return found


def plain(
    text: str,
    names: Names,
    numbers: Mapping[str, str],
    page: str = "",
    images: Mapping[str, str] | None = None,
) -> tuple[str, dict[str, str]]:
    """Markdown without directives and roles, and the captions of its figures, by name.

    ``numbers`` are those that the page has handed over to its text, and ``page`` is its name, from
    which links to other pages lead. With ``images``, addresses of figures by name, figures stand
    where the page has them, and boxes stay directives, for a program that knows MyST. What has no
    plain form stays as it is.
    """
    captions: dict[str, str] = {}

    def roles(part: str) -> str:
        for _ in range(2):  # the title that a reference stands for may cite
            part = _ROLE.sub(lambda m: _role(m[1], m[2], names, numbers) or m[0], part)
        part = _LABELLED.sub(lambda m: _linked(m[1], m[2], names, page) or m[0], part)
        return _ELSEWHERE.sub(r"\1", part)

    def convert(lines: list[str]) -> list[str]:
        out: list[str] = []
        while lines:
            line, lines = lines[0], lines[1:]
            opening = _OPENING.match(line)
            if not opening:
                if numbered := _EQUATION.fullmatch(line.strip()):
                    number = names.numbers.get(numbered[1])
                    out += [*([rf"\tag{{{number}}}"] if number else ()), "$$"]
                elif not _TARGET.fullmatch(line):
                    out.append(roles(line))
                continue
            fence, kind, title = opening[1], opening[2], opening[3]
            end = next((n for n, other in enumerate(lines) if other == fence), len(lines))
            inside, lines = lines[:end], lines[end + 1 :]
            options: dict[str, str] = {}
            while inside and (option := _OPTION.match(inside[0])):
                options[option[1]], inside = option[2], inside[1:]
            box = kind.rpartition(":")[2]
            if kind == "glue:figure":
                number = names.numbers.get(options.get("name", ""))
                said = "\n".join(convert(inside)).strip()
                captions[title] = f"*{f'Fig. {number}' if number else 'Figure'}.* {said}"
                if images is not None:
                    image = f"![{options.get('alt', '')}]({images.get(title)})"
                    out += [*([image, ""] if title in images else ()), captions[title]]
            elif images is not None and (box in _BLOCKS or kind in _BOXES or kind in _FOLDS):
                kept = [f":{name}: {options[name]}" for name in ("class",) if name in options]
                out += [
                    f"{fence}{{{kind}}} {roles(title)}".rstrip(),
                    *kept,
                    *convert(inside),
                    fence,
                ]
            elif kind not in _LEFT_OUT:
                out += _block(kind, roles(title), convert(inside))
        return out

    joined = "\n".join(convert(text.splitlines()))
    return re.sub(r"\n{3,}", "\n\n", joined).strip(), captions


def _block(kind: str, title: str, lines: list[str]) -> list[str]:
    """A directive as plain Markdown."""
    text = "\n".join(lines).strip().splitlines()
    if kind.rpartition(":")[2] in _BLOCKS or kind == "prf:assumption":
        return _quoted(f"**{_heading(kind, title)}.**", text)
    if kind == "dropdown":
        return ["", "<details>", f"<summary>{title}</summary>", "", *text, "", "</details>", ""]
    if kind == "exercise-start":
        return ["", f"**Exercise: {title}.**" if title else "**Exercise.**", "", *text, ""]
    if kind == "solution-start":
        return ["", "**Solution.**", "", *text, ""]
    return _quoted(f"**{title or _BOXES.get(kind, kind)}**", text)


def _quoted(heading: str, lines: list[str]) -> list[str]:
    return ["", *(f"> {line}".rstrip() for line in (heading, "", *lines)), ""]


def _role(kind: str, content: str, names: Names, numbers: Mapping[str, str]) -> str | None:
    """A role as plain Markdown; None where it has no plain form."""
    named = _NAMED.fullmatch(content)
    written, target = (named[1], named[2]) if named else ("", content)
    simple: dict[str, Callable[[], str | None]] = {
        "glue:text": lambda: numbers.get(target.partition(":")[0]),
        "cite": lambda: _cited(target, names, "({} {})"),
        "cite:p": lambda: _cited(target, names, "({} {})"),
        "cite:t": lambda: _cited(target, names, "{} ({})"),
        "py:func": lambda: f"`{target.removeprefix('~')}`",
        "py:meth": lambda: f"`{target.removeprefix('~')}`",
        "py:class": lambda: f"`{target.removeprefix('~')}`",
        "math": lambda: f"${target}$",
        "eq": lambda: _numbered("({})", target, names),
        "numref": lambda: _numbered("Fig. {}", target, names),
        "verdict": lambda: _verdict(target, names),
        "evidence": lambda: _evidence(target, names),
    }
    if kind in simple:
        return simple[kind]()
    if kind in ("ref", "prf:ref", "doc"):
        return written or names.titles.get(target, target)
    return None


def _numbered(form: str, label: str, names: Names) -> str | None:
    return form.format(names.numbers[label]) if label in names.numbers else None


def _linked(text: str, label: str, names: Names, page: str) -> str | None:
    """A link to an equation or a section, by its number or to its page; None if nobody knows it."""
    if label in names.numbers:
        return f"{text} ({names.numbers[label]})".lstrip()
    if label not in names.places:
        return None
    text = text or names.titles.get(label, label)
    if names.places[label] == page:
        return text
    link = posixpath.relpath(names.places[label], posixpath.dirname(page) or ".")
    return f"[{text}]({link}.ipynb)"


def _cited(keys: str, names: Names, form: str) -> str | None:
    found = [names.works.get(key.strip()) for key in keys.split(",")]
    return "; ".join(form.format(*work) for work in found if work) if all(found) else None


def _verdict(claim_id: str, names: Names) -> str | None:
    claim = names.ledger.get(claim_id)
    return claims.verdict_text(claim.expected, claim.severity) if claim else None


def _evidence(text: str, names: Names) -> str | None:
    claim_id, number, *form = text.split()
    found = names.evidence.get(claim_id, {})
    return figures.typeset(found[number], *form) if number in found else None
