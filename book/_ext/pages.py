"""Sphinx extension: verdicts, evidence and figures where a page wants them.

- ``:claim: thesis:3.14`` on a ``prf`` directive names the claim of ``book/claims.yml`` that the
  block states. A false statement stands in a red box, one that lacks a condition in an amber one;
  the title says the verdict, and leads to the correction: the block whose label is its own with
  ``-corrected``, or the badge of the check.
- ``{glue:figure}`` places beside the figure its rendering for narrow screens, ``NAME-narrow``; the
  style sheet shows one of them.
- ``{figure-of} 3-policy-evaluation/dp-lsw NAME`` shows a figure that another page has drawn.
- ``{verdict}`thesis:3.17` `` is a claim's verdict, which leads to its check, and
  ``{evidence}`thesis:3.17 largest_exact_over_printed ,.0f` `` one number of its evidence.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.states import Inliner
from myst_nb.core.variables import render_variable_outputs
from myst_nb.ext.glue.directives import PasteFigureDirective
from myst_nb.ext.glue.domain import NbGlueDomain
from myst_nb.ext.glue.utils import retrieve_glue_data
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx_proof.directive import ElementDirective
from sphinx_proof.domain import ProofDomain

from companion import claims, figures
from companion.build import executed
from companion.files import write_atomic

logger = logging.getLogger(__name__)

_LINK = "correction"
_BOXES = {"false as printed": "statement-false", "holds with conditions": "statement-conditions"}


class Statement(ElementDirective):
    """A block of ``sphinx-proof`` that may name the claim that it states."""

    option_spec: ClassVar[dict[str, Any]] = {
        **ElementDirective.option_spec,
        "claim": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Make the block, and mark it if its claim is at fault."""
        (block,) = super().run()
        name = self.options.get("claim")
        if name is None:
            return [block]
        claim = _claim(self.env, name)
        if claim.expected in claims.FAULTS:
            block["classes"].append(_BOXES[claim.expected])
            link = _verdict(self.env, claim, f"{block['label']}-corrected")
            block[0] += [nodes.Text(" "), link]
        return [block]


def _claim(env: BuildEnvironment, name: str) -> claims.Claim:
    path = Path(env.srcdir, "book", "claims.yml")
    env.note_dependency(str(path))
    listed = _load(path)
    if name not in listed:
        raise ExtensionError(f"{env.docname}: {name} is not listed in book/claims.yml")
    return listed[name]


_load = functools.cache(claims.load)


def _verdict(env: BuildEnvironment, claim: claims.Claim, correction: str = "") -> nodes.Element:
    """A claim's verdict as a link to its correction, or else to its check."""
    text = claims.verdict_text(claim.expected, claim.severity)
    shown = nodes.inline("", text, classes=["verdict", claims.STYLES[claim.expected]])
    return addnodes.pending_xref(
        "",
        shown,
        refdomain="",  # LaTeX asks for it
        reftype=_LINK,
        reftarget=correction,
        badge=claims.anchor(claim.id),
        refdoc=env.docname,
    )


def lead_to_correction(
    app: Sphinx, env: BuildEnvironment, link: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolve the link of a verdict."""
    if link["reftype"] != _LINK:
        return None
    corrected = getattr(env, "proof_list", {}).get(link["reftarget"])
    if corrected is not None:
        page, place = corrected["docname"], link["reftarget"]
    elif link["badge"] in env.get_domain("std").anonlabels:  # type: ignore[attr-defined]
        page, place = env.get_domain("std").anonlabels[link["badge"]]  # type: ignore[attr-defined]
    else:
        logger.warning("no page of the book shows %s", link["badge"], location=link)
        return content
    return make_refnode(app.builder, link["refdoc"], page, place, content)


class FigureForTwoWidths(PasteFigureDirective):
    """``{glue:figure}`` with its rendering for narrow screens."""

    def run(self) -> list[nodes.Node]:
        """Paste the figure, and before its caption the narrow rendering."""
        found = super().run()
        if not isinstance(found[0], nodes.figure):
            return found
        data = retrieve_glue_data(self.document, f"{self.arguments[0]}-narrow")
        render = {"image": {"alt": self.options.get("alt", "")}}
        narrow = render_variable_outputs(
            [data], self.document, self.line, self.source, render=render
        )
        for kind, pasted in (("for-wide", [found[0]]), ("for-narrow", narrow)):
            for image in (image for node in pasted for image in node.findall(nodes.image)):
                image["classes"].append(kind)
        found[0].insert(1, narrow)
        return found


class FigureOfPage(Figure, SphinxDirective):
    """``{figure-of} PAGE NAME``: a figure that another page has glued, with its own caption.

    ``:one-width:`` shows its narrow rendering at every width, as in a part of the column.
    """

    required_arguments = 2
    option_spec: ClassVar[dict[str, Any]] = {**Figure.option_spec, "one-width": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Write both renderings where Sphinx finds them, and place them."""
        page, name = self.arguments
        glued = executed.read(_executed(self.env, f"{page}.ipynb")).figures
        if name not in glued:
            raise self.error(f"{page} has no figure {name}; it has {', '.join(glued)}")
        folder = Path(self.env.srcdir, "_build", "figures", page)
        for each in (name, f"{name}-narrow"):
            write_atomic(folder / f"{each}.svg", glued[each])
        place = f"/_build/figures/{page}"
        if "one-width" in self.options:
            self.arguments = [f"{place}/{name}-narrow.svg"]
            return super().run()
        self.arguments = [f"{place}/{name}.svg"]
        (figure,) = super().run()
        wide = next(figure.findall(nodes.image))
        narrow = wide.deepcopy()
        narrow["uri"] = wide["uri"].replace(f"{name}.svg", f"{name}-narrow.svg")
        wide["classes"].append("for-wide")
        narrow["classes"].append("for-narrow")
        figure.insert(1, narrow)
        return [figure]


def _executed(env: BuildEnvironment, name: str) -> Path:
    path = Path(env.srcdir, "book", "nb", name)
    env.note_dependency(str(path))
    return path


def verdict(
    name: str, raw: str, text: str, line: int, inliner: Inliner, *_: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The role ``{verdict}``."""
    env = inliner.document.settings.env
    return [_verdict(env, _claim(env, text))], []


def evidence(
    name: str, raw: str, text: str, line: int, inliner: Inliner, *_: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The role ``{evidence}``: a claim, one of its numbers, perhaps a format."""
    env = inliner.document.settings.env
    name, number, *form = text.split()
    path = _executed(env, f"{_claim(env, name).page}.claims.json")
    found = claims.evidence_in(path)[name]
    return [nodes.Text(figures.typeset(found[number], *form))], []


def setup(app: Sphinx) -> dict[str, object]:
    """Put the two directives in the place of those that they extend."""
    for name, directive in ProofDomain.directives.items():
        if issubclass(directive, ElementDirective):
            ProofDomain.directives[name] = type(directive.__name__, (Statement, directive), {})
    NbGlueDomain.directives["figure"] = FigureForTwoWidths
    app.add_directive("figure-of", FigureOfPage)
    app.add_role("verdict", verdict)
    app.add_role("evidence", evidence)
    app.connect("missing-reference", lead_to_correction)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
