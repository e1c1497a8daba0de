"""Where a reader tries other values, an outcome that differs is shown, and the page goes on.

An extension of IPython (``%load_ext companion.outcomes``). The ``assert`` statements of a page say
of its numbers what its text says; they hold with the values of the book. With a reader's own they
may fail, which is something to see and no error: in cells that are executed from now on a false
one is shown with its line.
"""

from __future__ import annotations

import ast
import html
from typing import Any

from ._jupyter import publish

_NAME = "_outcome_of_the_page"


class _Assertions(ast.NodeTransformer):
    """``assert x`` becomes a call that shows ``x`` where it is false."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        call = ast.Call(
            func=ast.Name(_NAME, ast.Load()),
            args=[node.test, ast.Constant(ast.unparse(node.test))],
            keywords=[],
        )
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def show_unless(holds: object, text: str) -> None:
    """Show a statement of the page that does not hold."""
    if not holds:
        says = "With these values this does not hold"
        shown = f'<p class="outcome-differs">{says}: <code>{html.escape(text)}</code></p>'
        publish({"text/plain": f"{says}: {text}", "text/html": shown})


def load_ipython_extension(shell: Any) -> None:
    """Show false assertions of the cells to come (what IPython calls)."""
    shell.user_ns[_NAME] = show_unless
    if not any(isinstance(t, _Assertions) for t in shell.ast_transformers):
        shell.ast_transformers.append(_Assertions())
