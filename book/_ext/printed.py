r"""Sphinx extension: the book on paper, for ``make pdf``.

Its LaTeX differs from that of Sphinx in what a reader of the site would miss:

- Theorems, figures, tables and equations have the numbers of the site, which are computed once, by
  Sphinx; LaTeX counts nothing.
- A block stands in a box with the colour of its verdict, and a folded part of a page, a solution or
  a proof, between two lines.
- Figures are vector drawings in their wide rendering, and stay where the text has them.
- A table has columns as wide as what stands in them, within the line.
- A link to a page that the PDF does not have is its words.

The environments that it writes are those of ``printed.sty``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.transforms.post_transforms.images import ImageConverter
from sphinx.writers.latex import LaTeXTranslator
from sphinx_exercise import nodes as exercises
from sphinx_proof.nodes import NODE_TYPES, unenumerable_node

#: Width of the text and of a character in tables, between columns, and of a margin, in points.
LINE, CHARACTER, BETWEEN = 470.0, 4.4, 9.0
#: Rows and characters of the longest table that stays on one page.
_ROWS, _CHARACTERS = 15, 2000
_MATH = re.compile(r"\\[a-zA-Z]+|[{}_^$&]|\\.")
_NUMBER = re.compile(r"[\s\d.,×⁻⁰¹²³⁴⁵⁶⁷⁸⁹+−%±<>≤≥()-]*|nan|inf|—|–")
#: Verdicts: colour and sign of each.
STYLES = {
    "verdict-holds": ("exercise", "✓"),
    "verdict-reproduced": ("exercise", "✓"),
    "verdict-conditions": ("conditions", "≈"),
    "verdict-deviations": ("conditions", "≈"),
    "verdict-false": ("false", "✗"),
    "verdict-not": ("false", "✗"),
    "verdict-unchecked": ("note", "–"),
}
_BOXES = {"statement-false": "false", "statement-conditions": "conditions"}


class ForPaper(SphinxPostTransform):
    """Leave out what only a screen shows, before images are collected and links resolved."""

    default_priority = 2
    formats = ("latex",)

    def run(self, **kwargs: object) -> None:
        """Remove narrow renderings, explorers, and links that lead out of the PDF."""
        for image in list(self.document.findall(nodes.image)):
            if "for-narrow" in image.get("classes", ()):
                image.parent.remove(image)
        for box in list(self.document.findall(nodes.container)):
            if box.get("explorer") or box.get("design_component") == "card":
                box.parent.remove(box)
        for link in list(self.document.findall(addnodes.pending_xref)):
            if link.get("refdomain") == "py":
                link.replace_self(link.children)
            elif link["reftype"] == "myst" and _leads_out(self.env, link):
                link.replace_self(link.children[0].children or link.children)
        for download in list(self.document.findall(addnodes.download_reference)):
            download.replace_self(download.children)


def _leads_out(env: BuildEnvironment, link: addnodes.pending_xref) -> bool:
    """Whether a link is to a file, and the file is no page of the PDF."""
    target = link["reftarget"]
    if link.get("refdomain") == "doc":
        return target not in env.found_docs
    return bool(re.search(r"\.(md|ipynb|html)(#|$)", target))


class SvgToPdf(ImageConverter):
    """Convert drawings."""

    conversion_rules: ClassVar[list[tuple[str, str]]] = [("image/svg+xml", "application/pdf")]

    def is_available(self) -> bool:
        """Say yes: ``make pdf`` has looked."""
        return True

    def convert(self, _from: str | Path, _to: str | Path) -> bool:
        """Convert one file."""
        command = ["rsvg-convert", "--format=pdf", f"--output={_to}", str(_from)]
        subprocess.run(command, check=True)
        return True


def columns(rows: Sequence[Sequence[str]], line: float = LINE) -> str:
    r"""Columns of a LaTeX table for these cells, within a line in points.

    A column is as wide as its longest cell, and stands at the right if it holds numbers. If the
    line is too short, the widest columns are broken, to a third or to an equal share of the
    line, and what is left is theirs.

    >>> columns([["name", "value"], ["a", "1.5"]])
    'lr'
    >>> columns([["name", "what"], ["a", "word " * 100]])
    'l>{\\raggedright\\arraybackslash}p{434.4pt}'
    """
    cells = list(zip(*rows, strict=True))
    whole = [max(map(len, column)) * CHARACTER for column in cells]
    words = [max(len(w) for cell in column for w in [*cell.split(), ""]) for column in cells]
    room = line - BETWEEN * len(whole)
    share = room / len(whole)
    least = [max(n * CHARACTER, min(w / 3, share)) for n, w in zip(words, whole, strict=True)]
    widths, broken = list(whole), set[int]()
    while sum(widths) > room and len(broken) < len(whole):
        widest = max(set(range(len(whole))) - broken, key=whole.__getitem__)
        broken.add(widest)
        widths[widest] = least[widest]
    spare = room - sum(widths)
    parts = widths if spare < 0 else whole
    of_broken = sum(parts[n] for n in broken)
    made = []
    for n, column in enumerate(cells):
        if n in broken:
            width = widths[n] + spare * parts[n] / of_broken
            made.append(rf">{{\raggedright\arraybackslash}}p{{{width:.1f}pt}}")
        else:
            numbers = len(column) > 1 and all(map(_NUMBER.fullmatch, column[1:]))
            made.append("r" if numbers else "l")
    return "".join(made)


def words_of(node: nodes.Element) -> str:
    """The text of a cell, a formula about as long as it is set."""
    if any(node.findall(lambda n: isinstance(n, nodes.list_item | nodes.image))):
        return "m" * 200
    parts = []
    for paragraph in node.children:
        text = ""
        for leaf in paragraph.findall(nodes.Text):
            formula = isinstance(leaf.parent, nodes.math)
            text += _MATH.sub("", leaf.astext()) if formula else leaf.astext()
        parts.append(text)
    return " ".join("\n".join(parts).split())


class Printed(LaTeXTranslator):
    """Sphinx's LaTeX, but as the head of this file says."""

    def number(self, kind: str, node: nodes.Element) -> str:
        """The number that the site gives; empty if it gives none."""
        found = self.builder.env.toc_fignumbers.get(self.curfilestack[-1], {}).get(kind, {})
        return ".".join(str(n) for i in node["ids"] for n in found.get(i, ()))

    # -- headings, verdicts, works ------------------------------------------------------

    def visit_title(self, node: nodes.Element) -> None:
        section = node.parent
        if isinstance(section, nodes.section) and not self.this_is_the_title:
            found = self.builder.env.toc_secnumbers.get(self.curfilestack[-1], {})
            first = isinstance(section.parent, addnodes.start_of_file | nodes.document)
            has = found.get("") if first else any(found.get(f"#{i}") for i in section["ids"])
            part = self.sectionlevel == 0 and self.top_sectionlevel == 0
            if first and self.sectionnames[self.sectionlevel] == "section":
                self.body.append(r"\clearpage")
            self.body.append(rf"\setcounter{{secnumdepth}}{{{1 if has and not part else -2}}}")
        super().visit_title(node)
        if isinstance(section, nodes.Admonition):
            self.body.append(self.heading)
            self.heading = ""

    def visit_inline(self, node: nodes.Element) -> None:
        kind = next((STYLES[c] for c in node["classes"] if c in STYLES), None)
        if kind is None:
            super().visit_inline(node)
        else:
            self.body.append(r"\printedverdict{{{}}}{{{}}}{{".format(*kind))
            self.context.append("}")

    def visit_thebibliography(self, node: nodes.Element) -> None:
        self.body.append("\n\\begin{printedworks}\n")

    def depart_thebibliography(self, node: nodes.Element) -> None:
        self.body.append("\\end{printedworks}\n")

    def visit_citation(self, node: nodes.Element) -> None:
        key = f"cite.{node['docname']}:{node['ids'][0]}"
        self.body.append(rf"\item\hypertarget{{{key}}}{{}}")

    # -- blocks -------------------------------------------------------------------------

    def open_box(self, style: str, node: nodes.Element, heading: str = "") -> None:
        """Begin a box; its title follows as the title of the node, after the heading."""
        self.body.append(f"\n{self.hypertarget_to(node, anchor=True)}")
        self.body.append(f"\\begin{{printedbox}}{{{style}}}")
        self.heading = heading
        self.no_latex_floats += 1

    def close_box(self) -> None:
        """End a box."""
        self.body.append("\\end{printedbox}\n")
        self.no_latex_floats -= 1

    def visit_statement(self, node: nodes.Element) -> None:
        """A theorem and its like."""
        style = next((_BOXES[c] for c in node["classes"] if c in _BOXES), "statement")
        number = self.number(node.get("countertype", ""), node)
        self.open_box(style, node, f"{node['realtype'].title()} {number}".strip() + " ")

    def depart_statement(self, node: nodes.Element) -> None:
        """Its end."""
        self.close_box()

    def visit_exercise(self, node: nodes.Element) -> None:
        """An exercise."""
        self.body.append(f"\n\\phantomsection\\label{{exercise:{node['label']}}}")
        self.open_box("exercise", node)

    def visit_solution(self, node: nodes.Element) -> None:
        """A solution, which the site folds."""
        self.body.append(f"\n{self.hypertarget_to(node, anchor=True)}\\begin{{printedfold}}")
        self.heading = ""

    def depart_solution(self, node: nodes.Element) -> None:
        """Its end."""
        self.body.append("\\end{printedfold}\n")

    def visit_admonition(self, node: nodes.Element) -> None:
        self.open_box("note", node)
        if not (node.children and isinstance(node[0], nodes.title)):
            self.body.append("{}")

    def depart_admonition(self, node: nodes.Element) -> None:
        self.close_box()

    def _visit_named_admonition(self, node: nodes.Element) -> None:
        self.open_box("note" if node.tagname in ("note", "tip", "hint") else "conditions", node)
        self.body.append(f"{{{node.tagname.capitalize()}}}\n")

    def _depart_named_admonition(self, node: nodes.Element) -> None:
        self.close_box()

    for _name in ("attention", "caution", "danger", "error", "hint", "important", "note", "tip"):
        vars()[f"visit_{_name}"] = _visit_named_admonition
        vars()[f"depart_{_name}"] = _depart_named_admonition
    visit_warning, depart_warning = _visit_named_admonition, _depart_named_admonition

    def visit_container(self, node: nodes.Element) -> None:
        if node.get("design_component") == "dropdown":
            self.body.append("\n\\begin{printedfold}")

    def depart_container(self, node: nodes.Element) -> None:
        if node.get("design_component") == "dropdown":
            self.body.append("\n\\end{printedfold}\n")

    def visit_rubric(self, node: nodes.Element) -> None:
        parent = node.parent
        if isinstance(parent, nodes.container) and parent.get("design_component") == "dropdown":
            self.body.append(self.hypertarget_to(node) + "{")
            self.context.append("}\n")
        else:
            super().visit_rubric(node)

    # -- figures, tables, formulas ------------------------------------------------------

    def visit_figure(self, node: nodes.Element) -> None:
        super().visit_figure(node)
        self.body.append(rf"\renewcommand{{\thefigure}}{{{self.number('figure', node)}}}")

    def visit_caption(self, node: nodes.Element) -> None:
        super().visit_caption(node)
        # Nothing for a list of figures: LaTeX cannot move what a caption may hold.
        self.body[-1] = self.body[-1].replace(r"\caption{", r"\caption[]{")

    def visit_table(self, node: nodes.Element) -> None:
        rows = [[words_of(cell) for cell in row] for row in node.findall(nodes.row)]
        if len({len(row) for row in rows}) == 1:
            self.next_table_colspec = columns(rows)
        long = len(rows) > _ROWS or sum(len(cell) for row in rows for cell in row) > _CHARACTERS
        if long and self.no_latex_floats == 0:
            node["classes"].append("longtable")
        self.body.append("\n\\begingroup\\printedtable")
        self.body.append(rf"\renewcommand{{\thetable}}{{{self.number('table', node)}}}")
        super().visit_table(node)
        if "longtable" not in node["classes"]:
            self.table.has_verbatim = True  # a tabular, not one that measures its columns

    def depart_table(self, node: nodes.Element) -> None:
        super().depart_table(node)
        self.body.append("\\endgroup\n")

    def visit_math_block(self, node: nodes.Element) -> None:
        if not node.get("label"):
            super().visit_math_block(node)
        self.body.append(self.hypertarget_to(node, anchor=True))
        try:
            super().visit_math_block(node)
        finally:
            number = self.number("displaymath", node)
            text, tag = self.body[-1], rf"\tag{{{number}}}\label"
            self.body[-1] = text.replace(r"\label", tag, 1)


def shown_verdict(
    name: str, raw: str, text: str, line: int, inliner: object, *_: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The role ``{shown-verdict}``: a style and the words."""
    style, _, words = text.partition(" ")
    return [nodes.inline("", words, classes=["verdict", style])], []


def register(app: Sphinx) -> None:
    """Put the boxes in the place of those that other extensions write."""
    if app.builder.name != "latex":
        return
    app.set_translator("latex", Printed, override=True)
    statement = (Printed.visit_statement, Printed.depart_statement)
    exercise = (Printed.visit_exercise, Printed.depart_statement)
    solution = (Printed.visit_solution, Printed.depart_solution)
    handlers: dict[Any, tuple[Any, Any]] = dict.fromkeys(
        [*NODE_TYPES.values(), unenumerable_node], statement
    )
    handlers[exercises.exercise_node] = handlers[exercises.exercise_enumerable_node] = exercise
    handlers[exercises.solution_node] = solution
    for node, both in handlers.items():
        app.add_node(node, override=True, latex=both)


def setup(app: Sphinx) -> dict[str, object]:
    """Register all of it."""
    app.add_role("shown-verdict", shown_verdict)
    app.add_post_transform(ForPaper)
    app.add_post_transform(SvgToPdf)
    app.connect("builder-inited", register)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
