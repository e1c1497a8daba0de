"""The task graph of the book, for doit: pages, then the scorecard, then the site.

``make book`` runs it. Whether a task runs is decided by contents
(:mod:`companion.build.freshness`); doit orders the tasks and runs pages side by side, and its
own data base decides nothing. ``doit profile=paper`` chooses the sizes of the papers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from doit import get_var
from doit.exceptions import TaskFailed
from doit.reporter import ZeroReporter

from companion import files
from companion.build import freshness, site
from companion.build.execution import PROFILES
from companion.files import available_cores

ROOT = Path(__file__).resolve().parent
PROFILE = get_var("profile", "quick")
if PROFILE not in PROFILES:
    sys.exit(f"PROFILE must be one of {', '.join(PROFILES)}; got {PROFILE!r}")
JOBS = int(get_var("jobs", "2"))
# Quick pages are short: side by side, each with one worker. A page at the papers' sizes gets
# all cores for its sweeps, and the terminal for its progress bars.
SIDE_BY_SIDE = JOBS if PROFILE == "quick" else 1
WORKERS = 1 if PROFILE == "quick" else available_cores()
# They train what other pages of their chapter load: first, so that no page waits for them.
EARLY = ["5-membership-inference/two-oracles", "5-membership-inference/a-real-leak"]
PAGES = sorted(site.pages(ROOT), key=lambda page: page not in EARLY)
HAS_SCORECARD = f"{site.PAGES}scorecard" in site.toc_entries(ROOT)
SCORECARD, SCORECARD_RECORD = ROOT / "book/nb/scorecard.md", ROOT / "_build/scorecard.json"


class Progress:
    """Counts pages and prints whole lines, from whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self.reasons: dict[str, str] = {}
        self.failed: list[str] = []

    def say(self, text: str) -> None:
        """Print one message."""
        with self._lock:
            print(text, flush=True)

    def done(self, page: str, text: str) -> None:
        """Print the line that ends a page, with its count."""
        with self._lock:
            self._done += 1
            print(f"[{self._done}/{len(PAGES)}] {page} {text}", flush=True)


progress = Progress()


class Reporter(ZeroReporter):
    """Leaves the lines to the tasks; says at the end what came of it all."""

    def complete_run(self) -> None:
        """Name what failed, and where the site is."""
        index = site.SITE / "index.html"
        there = (ROOT / index).exists()
        if progress.failed:
            print(f"Failed: {', '.join(progress.failed)}.")
            print(f"The last good site is still {index}" if there else "There is no site yet.")
        elif there:
            print(f"The site is {index}")


DOIT_CONFIG = {
    "default_tasks": ["site"],
    "dep_file": str(ROOT / "_build" / "doit.json"),
    "backend": "json",
    "reporter": Reporter,
    "num_process": SIDE_BY_SIDE,
    "par_type": "thread",
    "continue": True,  # one page's failure does not keep the others from being executed
    "verbosity": 2,
}


def interrupted(_signal: int, _frame: object) -> None:
    """End at once on Ctrl-C; the pages get the same signal and clean up after themselves."""
    os.write(2, b"\nInterrupted. What is finished stays.\n")
    os._exit(130)


signal.signal(signal.SIGINT, interrupted)
(ROOT / "_build").mkdir(exist_ok=True)
# It decides nothing, and half of it after a kill would stop the next run.
Path(DOIT_CONFIG["dep_file"]).unlink(missing_ok=True)


def task_page():
    """Execute a page."""
    for page in PAGES:
        yield {
            "name": page,
            "actions": [(execute, [page])],
            "uptodate": [(page_is_up_to_date, [page])],
        }


def page_is_up_to_date(page: str) -> bool:
    """Say whether a page must run, and why."""
    why = freshness.reason(ROOT, page, {"profile": PROFILE})
    if why is None:
        progress.done(page, "is up to date")
        return True
    progress.reasons[page] = why
    return False


def execute(page: str) -> TaskFailed | None:
    """Run one page in a process of its own."""
    progress.say(f"      {page}: {progress.reasons[page]}")
    started = time.monotonic()
    command = [sys.executable, "-m", "companion.build.execution", page, "--profile", PROFILE]
    result = subprocess.run(
        [*command, "--workers", str(WORKERS)],
        cwd=ROOT,
        env={**os.environ, "DPRL_TTY": terminal()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = f"{time.monotonic() - started:.0f} s"
    if result.returncode:
        progress.failed.append(f"page {page}")
        progress.done(page, f"FAILED after {seconds}\n{result.stdout.rstrip()}")
        return TaskFailed(f"page {page}")
    progress.done(page, f"executed in {seconds}")
    return None


def terminal() -> str:
    """Where a page may draw progress bars; nowhere when pages run side by side."""
    return os.ttyname(2) if SIDE_BY_SIDE == 1 and os.isatty(2) else ""


def task_scorecard():
    """Write the scorecard from the verdicts the pages computed."""
    if not HAS_SCORECARD:
        return None
    return {
        "actions": [write_scorecard],
        "uptodate": [scorecard_is_up_to_date],
        "task_dep": ["page"],
    }


def scorecard_inputs() -> dict[str, str | None]:
    """Digest of the ledger, the verdicts, the generator, and the pages: it links to their lines."""
    patterns = (
        "_toc.yml",
        "book/claims.yml",
        "book/nb/**/*.claims.json",
        "book/nb/**/*.ipynb",
        "notebooks/**/*.md",
        "src/companion/*.py",
    )
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    names = [path.relative_to(ROOT).as_posix() for path in paths if ".staging" not in path.parts]
    return {name: files.digest(ROOT / name) for name in names}


def scorecard_outputs() -> dict[str, str | None]:
    """Digest of the scorecard."""
    return {"book/nb/scorecard.md": files.digest(SCORECARD)}


def scorecard_is_up_to_date() -> bool:
    """Say whether the scorecard must be written, and why."""
    why = freshness.record_reason(SCORECARD_RECORD, scorecard_inputs(), scorecard_outputs())
    progress.say(f"scorecard: {why}" if why else "scorecard is up to date")
    return why is None


def write_scorecard() -> TaskFailed | None:
    """Run the generator."""
    result = subprocess.run(
        [sys.executable, "-m", "companion.build.scorecard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        progress.failed.append("scorecard")
        progress.say(f"scorecard FAILED\n{result.stdout.rstrip()}")
        return TaskFailed("scorecard")
    freshness.write_record(SCORECARD_RECORD, scorecard_inputs(), scorecard_outputs())
    return None


def task_site():
    """Build the site from the executed pages."""
    return {
        "actions": [build_site],
        "uptodate": [site_is_up_to_date],
        "task_dep": ["page", *(["scorecard"] if HAS_SCORECARD else [])],
    }


def site_is_up_to_date() -> bool:
    """Say whether the site must be built, and why."""
    why = site.reason(ROOT)
    progress.say(f"site: {why}" if why else "site is up to date")
    return why is None


def build_site() -> TaskFailed | None:
    """Build the site beside the last one, then swap."""
    started = time.monotonic()
    try:
        site.build(ROOT, PROFILE)
    except site.SiteError as error:
        progress.failed.append("site")
        progress.say(f"site FAILED: {error}")
        return TaskFailed("site")
    progress.say(f"site built in {time.monotonic() - started:.0f} s")
    return None
