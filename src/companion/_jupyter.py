"""What the plumbing asks of Jupyter; without Jupyter nothing is shown and nothing is needed."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def in_jupyter() -> bool:
    """Whether an IPython shell runs this code (a page, Jupyter, or a terminal of IPython)."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def publish(bundle: Mapping[str, str], metadata: Mapping[str, object] | None = None) -> None:
    """Show one output in several formats; the reader's program picks one."""
    from IPython.display import publish_display_data

    publish_display_data(dict(bundle), metadata=dict(metadata or {}))  # type: ignore[no-untyped-call]


def use_svg(metadata: Mapping[str, str | None]) -> None:
    """Let Jupyter show matplotlib's figures as SVG."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("svg", metadata=dict(metadata))  # type: ignore[no-untyped-call]
