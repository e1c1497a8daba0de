"""Sphinx extension: docstrings that are plain to read in the source render without a warning.

The package's docstrings follow numpydoc but write mathematics as plain text and put doctests
last, without a heading. Three things are translated around napoleon:

- ``|X_s|`` is an absolute value, not a substitution;
- doctests after the last section are its own section, *Examples*;
- the type of an attribute is words (``ndarray, shape (N,)``), not a list of classes to link to.

A docstring without a section is left as it was written. An object that a package offers is
documented there; a reference to the module that defines it leads to the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(``.*?``|:\w+:`[^`]*`)")
_UNDERLINE = re.compile(r"-{3,}")
_ATTRIBUTE = re.compile(r"(?P<indent> *):ivar (?P<name>[^:]+):(?P<text>.*)")
_ATTRIBUTE_TYPE = re.compile(r" *:vartype (?P<name>[^:]+): (?P<type>.*)")
_KEY = "plain_docstrings"


def before_napoleon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Escape bars, and give doctests that come last their heading."""
    lines[:] = list(_escape_bars(lines))
    if _has_sections(lines):
        _head_examples(lines)
    else:
        setattr(app.env, _KEY, list(lines))  # for after_napoleon, which comes next


def after_napoleon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Undo napoleon where there was nothing to translate; write attributes' types as words."""
    plain = getattr(app.env, _KEY, None)
    if plain is not None:
        delattr(app.env, _KEY)
        lines[:] = plain
        return
    types = {m["name"]: m["type"] for line in lines if (m := _ATTRIBUTE_TYPE.fullmatch(line))}
    lines[:] = [_with_type(line, types) for line in lines if not _ATTRIBUTE_TYPE.fullmatch(line)]


def skip_field_numbers(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out what a named tuple says of its fields: the class has said it better."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def _escape_bars(lines: list[str]) -> Iterator[str]:
    """Escape ``|`` outside of literals, literal blocks and doctests."""
    block: int | None = None  # indentation of the paragraph that opened a literal block
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if block is not None and line.strip() and indent <= block:
            block = None
        if block is not None or line.lstrip().startswith((">>>", "...", "| ")):
            yield line
            continue
        parts = _LITERAL.split(line)
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        yield "".join(parts)
        if line.rstrip().endswith("::"):
            block = indent


def _has_sections(lines: list[str]) -> bool:
    return any(_UNDERLINE.fullmatch(line.strip()) for line in lines)


def _head_examples(lines: list[str]) -> None:
    """Put *Examples* before the first doctest after the last section's heading."""
    last = max(i for i, line in enumerate(lines) if _UNDERLINE.fullmatch(line.strip()))
    if lines[last - 1].strip() in ("Examples", "Example", "Notes"):
        return
    for number in range(last, len(lines)):
        if lines[number].startswith(">>>"):
            lines[number:number] = ["Examples", "--------"]
            return


def _with_type(line: str, types: dict[str, str]) -> str:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None or match["name"] not in types:
        return line
    name = match["name"].replace(", ", ",")  # Sphinx takes what is before a space for a type
    return f"{match['indent']}:ivar {name}: ({types[match['name']]}){match['text']}"


def public_name(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve ``dprl.privacy.guarantee.Guarantee`` to ``dprl.privacy.Guarantee``."""
    parts = node.get("reftarget", "").split(".")
    if node.get("refdomain") != "py" or parts[0] != "dprl" or len(parts) < 4:
        return None
    shorter = ".".join(parts[:2] + parts[3:])
    python = env.get_domain("py")
    return python.resolve_xref(
        env, node.get("refdoc"), app.builder, node["reftype"], shorter, node, contnode
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register around napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", after_napoleon, priority=600)
    app.connect("autodoc-skip-member", skip_field_numbers)
    app.connect("missing-reference", public_name)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
