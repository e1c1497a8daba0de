"""What a release holds, in one folder with checksums: ``make release TAG=v0.1.0``.

Written to ``_build/release``: the site as an archive, the book as a PDF, the archives of notebooks
and of the source, both wheels, and ``SHA256SUMS`` in the form of ``sha256sum``. The site and the
PDF must have been made before; the tag, where one is given, must be that of the package's version.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from companion.build import notebooks, pdf, site
from companion.files import sha256, write_atomic

#: Where it is written.
PLACE = Path("_build/release")
#: Checksums of the others.
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """Nothing to release; the message is for the terminal."""


def version(root: Path) -> str:
    """Version of the package, as ``pyproject.toml`` has it."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def collect(root: Path, tag: str = "") -> list[Path]:
    """Write the folder; what it holds is returned, the checksums last.

    A tag that is not ``v`` and the version, a site or a PDF that is missing or not of today's
    sources, or with a tag changes that nobody committed are a :class:`ReleaseError`.
    """
    number = version(root)
    if tag not in ("", f"v{number}"):
        raise ReleaseError(f"the tag is {tag}, but the package is version {number}: v{number}")
    why = site.reason(root)
    if why:
        raise ReleaseError(f"the site is not today's ({why}): make book")
    edition, printed = pdf.edition_of(root), root / pdf.EDITION
    if not printed.is_file() or printed.read_text(encoding="utf-8") != edition:
        raise ReleaseError(f"the PDF is not that of {edition}: make pdf")
    if tag and edition.endswith(pdf.CHANGED):
        raise ReleaseError(f"a release has a commit of its own, this is {edition}")
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    name = f"on-privacy-for-rl-{number}"
    shutil.copy(root / pdf.PRODUCT, place / f"{name}.pdf")
    shutil.make_archive(str(place / f"{name}-site"), "zip", root / site.SITE)
    made = root / notebooks.PLACE
    for path in sorted([*made.glob("*.whl"), *made.glob("*.zip")]):
        shutil.copy(path, place / (path.name if path.suffix == ".whl" else f"{name}-{path.name}"))
    files = sorted(place.iterdir())
    sums = "".join(f"{sha256(path.read_bytes())}  {path.name}\n" for path in files)
    write_atomic(place / SUMS, sums)
    return [*files, place / SUMS]


def main(argv: Sequence[str] | None = None) -> int:
    """Collect, and say how large each file is; 1 if something is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build.release", description="Collect what a release holds."
    )
    parser.add_argument("tag", nargs="?", default="", help="such as v0.1.0")
    try:
        files = collect(Path.cwd().resolve(), parser.parse_args(argv).tag)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for path in files:
        print(f"{PLACE / path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
