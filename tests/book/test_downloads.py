"""What a reader takes from the site runs with nothing of the repository."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from companion.build import executed, notebooks, plain, site

ROOT = Path(__file__).resolve().parents[2]
DOWNLOADS = ROOT / site.SITE / "downloads"
PAGES = (
    "2-background/gaussian-mechanism",
    "3-policy-evaluation/dp-lsw",
    "7-beyond/counts-for-free",
)
EQUATION = re.compile(r'id="equation-(eq-[\w-]+)">\s*<span class="eqno">\(([\d.]+)\)')
FIGURE = re.compile(
    r'<figure[^>]* id="(fig-[\w-]+)".*?<span class="caption-number">Fig. ([\d.]+) ', re.DOTALL
)
RUN = """\
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        code = "".join(cell["source"])
        lines = [line for line in code.splitlines() if not line.startswith("%pip")]
        shell.run_cell("\\n".join(lines)).raise_error()
import companion, dprl
print(companion.__file__, dprl.__file__)
"""

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Both wheels of the archive, in a folder of their own."""
    folder = tmp_path_factory.mktemp("downloads")
    zipfile.ZipFile(DOWNLOADS / "book.zip").extractall(folder)
    zipfile.ZipFile(DOWNLOADS / "student.zip").extractall(folder / "student")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    wheels = sorted(map(str, folder.glob("*.whl")))
    assert len(wheels) == 2
    subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(folder / "site"), *wheels], check=True
    )
    return folder


def test_chapters_2_to_4_need_neither_jax_nor_mujoco():
    pages = [page for page in site.pages(ROOT) if page.startswith(("2-", "3-", "4-"))]
    assert len(pages) > 30
    assert {notebooks.extra_of(ROOT, page) for page in pages} == {"pages"}


@pytest.mark.parametrize("page", [*PAGES, f"student/{PAGES[0]}"])
def test_a_notebook_of_the_archive_runs_without_the_repository(installed, page):
    # -S: the paths that an editable installation adds are not followed
    environment = {name: value for name, value in os.environ.items() if "DPRL" not in name}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(installed / "site"), sysconfig.get_paths()["purelib"]]
    )
    environment["MPLBACKEND"] = "agg"
    environment["IPYTHONDIR"] = str(installed / "ipython")
    path = installed / f"{page}.ipynb"
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUN, str(path)],
        cwd=path.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    places = done.stdout.split()[-2:]
    assert all(place.startswith(str(installed)) for place in places)
    # a student's cells run as they are, and know that there is an answer
    assert ("no answer yet" in done.stdout) == page.startswith("student/")


def test_no_cell_of_a_student_needs_what_only_a_solution_defines(installed):
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    command += ["--select", "F821", "--output-format", "concise", str(installed / "student")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_has_a_readable_notebook_and_all_archives_are_there():
    archived = zipfile.ZipFile(DOWNLOADS / "book.zip").namelist()
    for page in site.pages(ROOT):
        path = ROOT / site.SITE / "_sources/book/nb" / f"{page}.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        assert re.findall(r"^:{3,}|\{glue:\w+\}|\{prf:\w+\}", prose, re.MULTILINE) == [], page
        assert f"{page}.ipynb" in archived
    made = {path.name for path in (ROOT / notebooks.PLACE).glob("*.zip")}
    assert {"book.zip", "student.zip"} <= made
    assert {path.name for path in DOWNLOADS.iterdir()} == made


def test_figures_and_formulas_have_the_numbers_of_the_site():
    numbers = plain.names_of_book(ROOT, site.pages(ROOT)).numbers
    shown = {}
    for page in site.pages(ROOT):
        text = (ROOT / site.SITE / "book/nb" / f"{page}.html").read_text(encoding="utf-8")
        for found in (EQUATION, FIGURE):
            shown |= dict(found.findall(text))
    assert len(shown) > 300
    assert {label: numbers.get(label) for label in shown} == shown


@pytest.mark.parametrize("name", ["book", "student", "instructor", "3-policy-evaluation"])
def test_the_wheels_of_an_archive_lie_where_its_pages_look_for_them(name):
    """In the folder of the page or the one above, as the first cell says."""
    with zipfile.ZipFile(DOWNLOADS / f"{name}.zip") as archive:
        files = [PurePosixPath(file) for file in archive.namelist()]
        first = json.loads(archive.read(f"{PAGES[1]}.ipynb"))["cells"]
    assert any("--find-links . --find-links .." in "".join(cell["source"]) for cell in first)
    wheels = [file for file in files if file.suffix == ".whl"]
    assert len(wheels) == 2
    assert PurePosixPath("README.txt") in files
    pages = [file for file in files if file.suffix == ".ipynb"]
    assert pages
    for page in pages:
        assert {wheel.parent for wheel in wheels} <= {page.parent, page.parent.parent}, page


def test_every_figure_is_in_the_archive_of_figures():
    names = zipfile.ZipFile(DOWNLOADS / "figures.zip").namelist()
    assert len(set(names)) == len(names)
    for page in site.pages(ROOT):
        drawn = executed.read(ROOT / "book" / "nb" / f"{page}.ipynb").figures
        for name in (name for name in drawn if not name.endswith("-narrow")):
            for suffix in ("svg", "png", "txt"):
                assert f"{page}--{name}.{suffix}" in names
    with zipfile.ZipFile(DOWNLOADS / "figures.zip") as archive:
        text = archive.read("3-policy-evaluation/dp-lsw--psi-over-k.txt").decode()
        assert "The noise has to guard against" in text
        assert archive.read("3-policy-evaluation/dp-lsw--psi-over-k.png")[:4] == b"\x89PNG"
    assert "3-policy-evaluation/data/figure-3-1.csv" in names
    assert "3-policy-evaluation/data/figure-3-1.json" in names


def test_only_the_instructor_has_the_solutions():
    solution = "Of two visits with the same return let one be replaced"
    assert solution not in (ROOT / site.SITE / "book/nb/teach.html").read_text(encoding="utf-8")
    with zipfile.ZipFile(DOWNLOADS / "instructor.zip") as archive:
        text = archive.read("teaching.md").decode()
        assert solution in text
        # of an exercise in class, with what its code printed
        assert "One rarely visited state sets the noise of all." in text
        assert "answer, with it: 0.1" in text
        names = set(archive.namelist())
        assert {f"{page}.ipynb" for page in site.pages(ROOT)} | {"slides/chapter-3.md"} <= names
        assert not any(name.startswith("student") for name in names)
        page = json.loads(archive.read("3-policy-evaluation/dp-lsw.ipynb"))
    assert "**Solution.**" in json.dumps(page)
    assert any(cell.get("outputs") for cell in page["cells"])
