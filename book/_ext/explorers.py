"""Sphinx extension: explorers, figures that the reader moves, without a kernel or a network.

``{explorer} two-gaussians`` places the explorer of that name, defined in
``book/_static/explorers/catalogue.js``; its body says what to try. The formulas are those of
``formulas.js``, which a test compares with :mod:`dprl`; constants that only the package can
compute are computed here, when the site is built, and handed over in the page. Pages without an
explorer load nothing of all this.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from companion.build import freshness
from companion.files import write_atomic
from dprl import Chain, noisy_gradient_sigma, privacy
from dprl.private_evaluation.choice import Features, Model, forecasts
from dprl.private_evaluation.private_lstd import LSTDRounds
from dprl.private_evaluation.structure_free import SHARES

STYLES = ("vendor/uplot/uPlot.min.css", "explorers/explorers.css")
#: In the order in which a browser runs them.
SCRIPTS = (
    "vendor/uplot/uPlot.iife.min.js",
    "explorers/formulas.js",
    "explorers/explorers.js",
    "explorers/catalogue.js",
)
_WITHOUT = "The controls need JavaScript; the figures of this page show one setting each."


def no_constants(env: BuildEnvironment) -> dict[str, Any]:
    """What an explorer needs whose formulas are all there is."""
    return {}


def chain_values(env: BuildEnvironment) -> dict[str, Any]:
    """True values of the chain."""
    return {"values": Chain().values().tolist()}


def gpope_noise(env: BuildEnvironment) -> dict[str, Any]:
    """Noise of GPOPE at delta = 1e-5, from above and from below.

    It takes a quarter of a minute, and is kept below ``_build`` as long as the accounting is the
    same.
    """
    delta = 1e-5
    key = freshness.key_of([_GPOPE, freshness.digests(Path(privacy.__file__).parent)])
    kept = Path(env.srcdir, "_build", "explorers", f"gpope-{key[:16]}.json")
    if not kept.is_file():
        rows = []
        for m, passes, epsilon in itertools.product(*_GPOPE):
            setting = (epsilon, delta, m, passes * m)
            noise = {
                "above": noisy_gradient_sigma(*setting),
                "below": privacy.noisy_gradient_sigma_lower(*setting),
            }
            rows.append({"m": m, "passes": passes, "epsilon": epsilon, **noise})
        write_atomic(kept, json.dumps(rows))
    return {"delta": delta, "rows": json.loads(kept.read_text(encoding="utf-8"))}


#: Trajectories m, steps for each, and epsilon.
_GPOPE = ((1_000, 10_000, 100_000), (1, 10), (0.1, 0.3, 1.0, 3.0))


def evaluators(env: BuildEnvironment) -> dict[str, Any]:
    """What only the package knows of the evaluators: a family of chains, and shares of budgets."""
    plan = LSTDRounds()
    models = [
        {"states": n, "start": start, "forecasts": _forecasts(Model(Chain(n, start=start)))}
        for n, start in itertools.product((5, 10, 20, 40, 80), ("first", "uniform"))
    ]
    lstd = {
        "matrix": plan.matrix / plan.total,
        "residual": plan.residuals[-1] / plan.total,
        # Nothing else asks for anything with so small a residual and matrix.
        "fewest": forecasts(Features(1, 1e-9, 0.0, 1.0, matrix=1e-9))[0].least,
    }
    shares = {"first": SHARES[0], "last": SHARES[-1]}
    return {"models": models, "free_shares": shares, "lstd_shares": lstd}


def _forecasts(problem: Model) -> list[dict[str, Any]]:
    return [dataclasses.asdict(one) for one in forecasts(problem)]


#: The explorers: what a screen reader calls each, and its constants.
EXPLORERS: dict[str, tuple[str, Callable[[BuildEnvironment], dict[str, Any]]]] = {
    "two-gaussians": ("Two Gaussians and δ", no_constants),
    "smooth-bound": ("The smooth bound ψ", no_constants),
    "dp-lsw-noise": ("The noise of DP-LSW and one release", chain_values),
    "risk-bounds": ("Printed, exact and corrected risk", no_constants),
    "subsampling": ("Sub-sample-and-average and plain noise", no_constants),
    "gaussian-game": ("Membership and attribution", no_constants),
    "gpope-noise": ("The noise of GPOPE", gpope_noise),
    "comb": ("The comb of possible answers", no_constants),
    "which-evaluator": ("Which evaluator?", evaluators),
}


class Explorer(SphinxDirective):
    """``{explorer} NAME``: controls, plots, and what to try."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Make the box; the scripts fill it."""
        (name,) = self.arguments
        if name not in EXPLORERS:
            raise self.error(f"no explorer is called {name}; there are {', '.join(EXPLORERS)}")
        title, constants = EXPLORERS[name]
        box = nodes.container(classes=["explorer"])
        box["explorer"] = True
        box += nodes.paragraph("", f"Try it: {title}", classes=["explorer-title"])
        self.state.nested_parse(self.content, self.content_offset, box)
        box += nodes.raw("", _mount(name, title, constants(self.env)), format="html")
        return [box]


def _mount(name: str, title: str, constants: dict[str, Any]) -> str:
    data = json.dumps(constants, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div data-explorer="{name}" role="group" aria-label="{escape(title)}">'
        f'<script type="application/json">{data}</script>'
        f"<noscript><p>{_WITHOUT}</p></noscript></div>"
    )


def add_scripts(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Load the scripts on pages with an explorer, once."""
    if doctree is None or not any(box.get("explorer") for box in doctree.findall(nodes.container)):
        return
    for sheet in STYLES:
        app.add_css_file(sheet)
    for script in SCRIPTS:
        app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive and the hook."""
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
