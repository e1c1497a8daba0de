"""Times of pages: what a process and its children used, kept by name, drawn in proportion."""

import os
import re
import sys
import threading
from xml.etree import ElementTree

import pytest

from companion.build import times
from companion.build.times import Time

PAGES = ["2-a/one", "2-a/two", "3-b/three", "loose"]
KEPT = {"2-a/one": Time(9.0, 10.0), "2-a/two": Time(40.0, 30.0), "loose": Time(1.0, 2.0)}


@pytest.fixture
def root(tmp_path):
    for name, taken in KEPT.items():
        times.note(tmp_path, name, taken)
    return tmp_path


def bars(drawing):
    """Widths of the pieces in the order of the drawing."""
    parts = ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}rect")
    return [float(part.get("width")) for part in parts]


def test_a_command_with_its_status_words_and_time(tmp_path):
    """The work is done by a child of the command: half a second of the processor."""
    work = "import time\nwhile time.process_time() < 0.5: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {work!r}])\n"
    command = [sys.executable, "-c", code + "print('done'); sys.exit(3)"]
    status, said, taken = times.run(command, tmp_path, os.environ)
    assert (status, said) == (3, "done\n")
    assert taken.processor >= 0.5
    assert taken.clock >= 0.5


def test_a_killed_command_has_the_signal_as_its_status(tmp_path):
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert times.run(command, tmp_path, os.environ)[0] == -9


def test_the_stopwatch_counts_this_process(tmp_path):
    """In a process of one thread (more use the processor faster than the clock runs), and for
    longer than the ticks of a hundredth to which its user's and system's seconds are rounded."""
    code = (
        "from companion.build import times\n"
        "watch = times.Stopwatch()\n"
        "while watch.read().processor < 0.5: pass\n"
        "print(watch.read().clock >= 0.45)\n"
    )
    assert times.run([sys.executable, "-c", code], tmp_path, os.environ)[:2] == (0, "True\n")


def test_times_are_kept_by_name_and_the_last_counts(root):
    times.note(root, "loose", Time(5.0, 6.0))
    assert times.load(root) == {**KEPT, "loose": Time(5.0, 6.0)}


def test_pages_side_by_side_lose_none(tmp_path):
    names = [f"page-{n}" for n in range(20)]
    threads = [threading.Thread(target=times.note, args=(tmp_path, n, Time(1, 1))) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert times.load(tmp_path).keys() == set(names)


@pytest.mark.parametrize("broken", ["", "[]", '{"a": 1}', '{"a": {"clock": 1}}'])
def test_a_broken_file_is_no_file(tmp_path, broken):
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build/times.json").write_text(broken)
    assert times.load(tmp_path) == {}


def test_chapters_hold_their_pages_dearest_first():
    found = times.chapters({**KEPT, times.SITE: Time(1, 1)}, PAGES)
    assert {c: [name for name, _ in part] for c, part in found.items()} == {
        "2-a": ["2-a/two", "2-a/one"],
        "loose": ["loose"],
        times.SITE: [times.SITE],
    }


def test_bars_are_as_long_as_the_times():
    longest, second, loose = bars(times.draw(KEPT, PAGES))
    assert longest == pytest.approx(3 * second, abs=0.2)
    assert second == pytest.approx(5 * loose, abs=0.6)


def test_the_section_counts_what_was_timed_and_lists_it(root):
    text = "\n".join(times.section(root, PAGES))
    assert "42 together for 3 of 4 pages" in text
    assert re.findall(r"\* - `(.+)`\n  - (\d+)\n  - (\d+)", text) == [
        ("2-a/two", "30", "40"),
        ("2-a/one", "10", "9"),
        ("loose", "2", "1"),
    ]


def test_without_a_time_it_says_so(tmp_path):
    assert "none was timed" in times.section(tmp_path, PAGES)[-1]
