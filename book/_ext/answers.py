"""Sphinx extension: a place for an answer in the box of each exercise whose solution computes it.

The executed page hands its answers over (:mod:`companion.exercise`); the box gets, after its text,
one element for each, with value and tolerance. ``answers.js`` makes of it a field that judges what
is typed; without scripts nothing is shown.
"""

from __future__ import annotations

import html
import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_exercise.nodes import is_exercise_node

from companion.exercise import Answer, answers_of


def place_answers(app: Sphinx, doctree: nodes.document) -> None:
    """Put the answers of an executed page into its exercises."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    boxes = {node["label"]: node for node in doctree.findall(is_exercise_node)}
    for answer in answers_of(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if answer.label not in boxes:
            raise ExtensionError(f"{app.env.docname}: no exercise has the label {answer.label}")
        boxes[answer.label] += nodes.raw("", _element(answer), format="html")


def _element(answer: Answer) -> str:
    data = "".join(
        f' data-{name}="{html.escape(str(getattr(answer, name)))}"'
        for name in ("label", "what", "value", "rtol", "atol")
    )
    return f'<div class="exercise-answer" hidden{data}></div>'


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hook."""
    app.connect("doctree-read", place_answers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
