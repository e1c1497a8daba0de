"""A page of which only the text changed gets its new text, with the outputs that it has.

What the code of a page computes does not depend on the text around it: no page reads its own
source but for the code in it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from companion.build import execution, freshness
from companion.dependencies import Sources
from companion.files import digest, source_path, write_atomic


def publish(
    root: Path, page: str, parameters: Mapping[str, Any], sources: Sources | None = None
) -> bool:
    """Publish a page's new text with its outputs, if that is all that changed; whether it was.

    The code cells must be what they were when the page was executed, with their options, and so
    must everything else that it was made from (:mod:`companion.build.freshness`) and what it made;
    otherwise nothing happens. Arguments as of :func:`companion.build.freshness.reason`.
    """
    product = functools.partial(freshness.product_path, root, page)
    stamp = freshness.read_stamp(product("stamp.json"))
    if stamp is None or not product("ipynb").is_file():
        return False
    made_from = stamp["inputs"] | freshness.inputs(root, page, parameters)  # before it is read
    if made_from["page"] == stamp["inputs"]["page"]:
        return False  # most often it is code elsewhere that changed: nothing need be read
    executed = json.loads(product("ipynb").read_text(encoding="utf-8"))
    try:
        notebook = execution.clean(execution.read_source(source_path(root, page), page))
    except Exception:  # of jupytext, of YAML, of decoding: the execution says what is wrong
        return False
    if not _take_outputs(notebook, executed):
        return False
    if freshness.reason(root, page, parameters, sources, same_code=True) is not None:
        return False
    write_atomic(product("ipynb"), execution.as_text(notebook))
    name = product("ipynb").relative_to(root).as_posix()
    outputs = stamp["outputs"] | {name: digest(product("ipynb"))}
    freshness.write_stamp(product("stamp.json"), made_from, outputs)
    return True


def _take_outputs(notebook: Any, executed: Mapping[str, Any]) -> bool:
    """Give a page's cells the outputs of its execution; False if they are not the same cells."""
    ran = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    # the values that the page was given stand in a cell of their own
    given = [cell for cell in ran if cell["id"] == "injected"]
    ran = [cell for cell in ran if cell not in given]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [_compared(cell) for cell in cells] != [_compared(cell) for cell in ran]:
        return False
    for cell, before in zip(cells, ran, strict=True):
        cell.outputs, cell.execution_count = before["outputs"], before["execution_count"]
    tags = [cell.metadata.get("tags", ()) for cell in notebook.cells]
    after = next(n for n, found in enumerate(tags, 1) if "parameters" in found)
    notebook.cells[after:after] = given
    return True


def _compared(cell: Mapping[str, Any]) -> tuple[str, Any]:
    return cell["source"], cell["metadata"]
