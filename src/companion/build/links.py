"""Whether the addresses outside that the book names still answer: ``make links``.

Sphinx asks each of them, in the pages as they were executed last. The report is
``_build/links/_build/linkcheck/output.txt``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from companion.build.site import jupyter_book

PLACE = Path("_build/links")
_REPORT = PLACE / "_build" / "html" / "output.txt"  # where Jupyter Book lets Sphinx write it
_BROKEN = re.compile(r"^.*\[broken\](?!.*\b403\b).*$", re.MULTILINE)


def broken(report: str) -> list[str]:
    r"""Return the lines of a report that name an address which does not answer.

    Publishers forbid programs to read (403); the address is there.

    >>> broken("a.md:1: [redirected permanently] x to y\nb.md:2: [broken] z: 404")
    ['b.md:2: [broken] z: 404']
    """
    return _BROKEN.findall(report)


def main() -> int:
    """Ask, and print what is broken; 1 if anything is."""
    root = Path.cwd().resolve()
    report = root / _REPORT
    report.unlink(missing_ok=True)  # one of an earlier run
    done = jupyter_book(root, "--builder", "linkcheck", "--path-output", str(PLACE))
    if not report.is_file():
        print(done.stdout, "the book was not read: make book", sep="\n", file=sys.stderr)
        return 1
    found = broken(report.read_text(encoding="utf-8"))
    print("\n".join(found) if found else f"every address answers; the report is {_REPORT}")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
