"""The whole book: pages that must run, side by side, then the site.

``python -m companion.build`` (``make book``) says of every page why it runs or that it is up
to date (:mod:`companion.build.freshness`). A page that fails keeps no other from running; the
site waits for all of them, and until then the last good site stays. Whatever
is killed, and when, the next run goes on with what is missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from companion.build import freshness, new_text, site, times
from companion.dependencies import sources_of
from companion.files import PROFILES, available_cores

#: These pages come first, in this order: they train what other pages of chapter 5 load. The second
#: loads nothing, and takes about as long as the first needs until the others find its agents.
EARLY = (
    "5-membership-inference/two-oracles",
    "4-subsampling/experiments",
    "5-membership-inference/a-real-leak",
    "5-membership-inference/learning-curves",
)


@dataclass
class Book:
    """One run over the book.

    ``root`` is the repository, absolute, and ``jobs`` how many pages run at the same time. Those of
    the profile ``quick`` are short and run side by side, each with one worker; ``paper`` runs one
    page at a time, which gets all cores for its sweeps and the terminal for its progress.
    """

    root: Path
    profile: str = "quick"
    jobs: int = 2
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        if self.profile != "quick":
            self.jobs = 1
        pages = site.pages(self.root)
        early = [page for page in EARLY if page in pages]
        self.pages = [*early, *(page for page in pages if page not in early)]

    def make(self) -> bool:
        """Run what must run; whether all of it succeeded."""
        sources = sources_of(self.root)
        passed = {"profile": self.profile}
        reasons = {p: freshness.reason(self.root, p, passed, sources) for p in self.pages}
        sources.keep()
        stale = []
        for page, why in reasons.items():
            if why is None:
                self._ends(page, "is up to date")
            elif new_text.publish(self.root, page, passed, sources):
                self._ends(page, "has its new text; its code is what it was")
            else:
                stale.append((page, why))
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda item: self._execute(*item), stale))
        if not self.failed:
            self._build_site()
        self._sum_up()
        return not self.failed

    def _say(self, text: str) -> None:
        with self._lock:
            print(text, flush=True)

    def _ends(self, page: str, text: str) -> None:
        """Print the line that ends a page, with its count."""
        with self._lock:
            self._done += 1
            print(f"[{self._done}/{len(self.pages)}] {page} {text}", flush=True)

    def _execute(self, page: str, why: str) -> None:
        """Run one page in a process of its own."""
        self._say(f"      {page}: {why}")
        workers = 1 if self.profile == "quick" else available_cores()
        code, output, taken = self._run(page, f"--profile={self.profile}", f"--workers={workers}")
        seconds = f"{taken.clock:.0f} s"
        if code:
            self.failed.append(f"page {page}")
            self._ends(page, f"FAILED after {seconds}\n{output.rstrip()}")
        else:
            if self.profile == "quick":
                times.note(self.root, page, taken)
            self._ends(page, f"executed in {seconds}")

    def _run(self, *arguments: str) -> tuple[int, str, times.Time]:
        """Exit status and output of the execution of a page, and its time."""
        # where it may draw progress bars: nowhere when pages run side by side
        terminal = os.ttyname(2) if self.jobs == 1 and os.isatty(2) else ""
        return times.run(
            [sys.executable, "-m", "companion.build.execution", *arguments],
            cwd=self.root,
            env={**os.environ, "DPRL_TTY": terminal},
        )

    def _build_site(self) -> None:
        why = site.reason(self.root)
        self._say(f"site: {why}" if why else "site is up to date")
        watch = times.Stopwatch()
        try:
            if why:
                site.build(self.root, self.profile)
                times.note(self.root, times.SITE, watch.read())
                self._say(f"site made in {watch.read().clock:.0f} s")
        except site.SiteError as error:
            self.failed.append("site")
            self._say(f"site FAILED\n{error}")

    def _sum_up(self) -> None:
        """Name what failed, and where the site is."""
        index = site.SITE / "index.html"
        there = (self.root / index).exists()
        if self.failed:
            print(f"Failed: {', '.join(self.failed)}.")
            print(f"The last good site is still {index}" if there else "There is no site yet.")
        elif there:
            print(f"The site is {index}")


def _interrupted(_signal: int, _frame: object) -> None:
    """End at once on Ctrl-C; the pages get the same signal and clean up after themselves."""
    os.write(2, b"\nInterrupted. What is finished stays.\n")
    os._exit(130)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line from the root of the repository; 1 if anything failed."""
    parser = argparse.ArgumentParser(
        prog="python -m companion.build",
        description="Execute the pages that changed and build the site.",
    )
    parser.add_argument("--profile", default="quick", choices=PROFILES)
    parser.add_argument("--jobs", type=int, default=2, help="quick pages at the same time")
    options = parser.parse_args(argv)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    signal.signal(signal.SIGINT, _interrupted)
    return int(not Book(Path.cwd().resolve(), options.profile, options.jobs).make())
