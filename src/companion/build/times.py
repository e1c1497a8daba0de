"""Where the time of ``make book`` goes: what each page took when it last ran, and a drawing of it.

Processor seconds are those of a page's process and of all that it started. They are what counts
on a shared machine, where seconds of the clock depend on the neighbours. Times lie in
``_build/times.json``, of this machine only; what was executed elsewhere has none.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from companion.files import write_atomic

#: The name under which the rendering of the site stands beside the pages.
SITE = "the site"

_PLACE = Path("_build/times.json")
_DEAREST = 10
_LEFT, _WIDTH, _ROW = 190, 620, 26  # of the drawing: names, bars, a row
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Time:
    """Seconds by the clock, and of the processor."""

    clock: float
    processor: float


class Stopwatch:
    """The time since it was made, of this process and of its children that have ended."""

    def __init__(self) -> None:
        self._clock, self._processor = time.monotonic(), sum(os.times()[:4])

    def read(self) -> Time:
        """Seconds until now."""
        return Time(time.monotonic() - self._clock, sum(os.times()[:4]) - self._processor)


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str, Time]:
    """Exit status of a command, all that it says, and the time that it took with its children."""
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    taken = Time(time.monotonic() - started, used.ru_utime + used.ru_stime)
    return process.returncode, said, taken


def note(root: Path, name: str, taken: Time) -> None:
    """Keep what a page, or the site, took."""
    with _LOCK:
        kept = {**load(root), name: taken}
        text = json.dumps({n: asdict(t) for n, t in sorted(kept.items())}, indent=1)
        (root / _PLACE).parent.mkdir(exist_ok=True)
        write_atomic(root / _PLACE, text + "\n")


def load(root: Path) -> dict[str, Time]:
    """The times by name; none where nothing was timed or the file is broken."""
    try:
        kept = json.loads((root / _PLACE).read_text(encoding="utf-8"))
        return {name: Time(**taken) for name, taken in kept.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def chapters(times: Mapping[str, Time], pages: Sequence[str]) -> dict[str, list[tuple[str, Time]]]:
    """Timed pages of each chapter, the dearest first; loose pages, and the site, by themselves."""
    found: dict[str, list[tuple[str, Time]]] = {}
    for name in [*pages, SITE]:
        if name in times:
            found.setdefault(name.rpartition("/")[0] or name, []).append((name, times[name]))
    return {c: sorted(part, key=lambda item: -item[1].processor) for c, part in found.items()}


def draw(times: Mapping[str, Time], pages: Sequence[str]) -> str:
    """One bar for each chapter, a piece for each page, as an SVG in the colours of the page."""
    parts = chapters(times, pages)
    totals = {c: sum(t.processor for _, t in part) for c, part in parts.items()}
    scale = _WIDTH / max(*totals.values(), 1e-9)
    said = "; ".join(f"{chapter}: {total:.0f} s" for chapter, total in totals.items())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 70} '
        f'{_ROW * len(parts) + 4}" role="img" aria-label="Processor seconds. {html.escape(said)}" '
        'style="min-width: 40rem; width: 100%" font-family="inherit" font-size="14" '
        'fill="currentColor" stroke="none">'
    ]
    for row, (chapter, part) in enumerate(parts.items()):
        y, x = row * _ROW + 2, float(_LEFT)
        lines.append(
            f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{html.escape(chapter)}</text>'
        )
        for number, (name, taken) in enumerate(part):
            wide = taken.processor * scale
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW - 4}" '
                f'fill-opacity="{0.55 if number % 2 else 0.35}">'
                f"<title>{html.escape(name)}: {taken.processor:.0f} s</title></rect>"
            )
            x += wide
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 16}">{totals[chapter]:.0f} s</text>')
    return "\n".join([*lines, "</svg>"])


def section(root: Path, pages: Sequence[str]) -> list[str]:
    """The section of the page for contributors, as lines of MyST markdown."""
    times = load(root)
    timed = [(name, times[name]) for name in pages if name in times]
    text = ["", "## Where the time of `make book` goes", ""]
    if not timed:
        return [*text, "No page was executed where this site was built, so none was timed."]
    total = sum(taken.processor for _, taken in timed)
    last = "; the last bar is the last rendering" if SITE in times else ""
    text += [
        "Processor seconds of each page when it last ran on the machine that built this site, "
        f"{total:,.0f} together for {len(timed)} of {len(pages)} pages. A bar is a chapter, a "
        f"piece of it a page, the dearest first{last}. The cheapest page takes "
        f"{min(taken.processor for _, taken in timed):.0f} s.",
        "",
        "```{raw} html",
        '<div style="overflow-x: auto" tabindex="0"',
        'role="region" aria-label="Processor seconds of the chapters">',
        draw(times, pages),
        "</div>",
        "```",
        "",
        ":::{list-table}",
        ":header-rows: 1",
        "",
        "* - The dearest pages\n  - Processor (s)\n  - Clock (s)",
    ]
    for name, taken in sorted(timed, key=lambda item: -item[1].processor)[:_DEAREST]:
        text.append(f"* - `{name}`\n  - {taken.processor:.0f}\n  - {taken.clock:.0f}")
    return [*text, ":::"]
