"""Numbers typed in from the papers, kept in ``data/published``.

A page that sets its own numbers beside those of a source reads them here::

    printed = published.load("table-5-2")

``data/published/README.md`` says for each table where it stands in its source and how it
was typed. Nothing in that folder is computed.
"""

from __future__ import annotations

import re

import pandas as pd

from .files import current_run

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def load(name: str) -> pd.DataFrame:
    """Read one published table, one row per printed number, by its file's name without suffix.

    A name that is not lower-case words or numbers joined by ``-``, or that no table has, is a
    ``ValueError``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must look like table-5-2, got {name!r}")
    folder = current_run().root / "data" / "published"
    path = folder / f"{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in folder.glob("*.csv"))) or "none"
        raise ValueError(f"there is no published table {name!r}; there are: {known}")
    return pd.read_csv(path)
