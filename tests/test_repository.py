"""What holds the repository together: one set of versions, nothing heavy, nothing local."""

import ast
import fnmatch
import functools
import importlib
import inspect
import itertools
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from companion.build import site, verification, verified
from companion.dependencies import is_command

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCKS = ["requirements.lock", "requirements-lab.lock", "requirements-check.lock"]
PACKAGES = ("dprl", "experiments", "companion")
LARGEST = 2 * 1024 * 1024


def tracked() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be asked")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


def locked() -> dict[str, set[Version]]:
    """Package to its locked versions, of which there may be one per version of Python."""
    versions: dict[str, set[Version]] = {}
    files = [ROOT / name for name in LOCKS]
    for line in "\n".join(path.read_text(encoding="utf-8") for path in files).splitlines():
        found = re.match(r"([A-Za-z0-9._-]+)==(\S+)", line)
        if found:
            versions.setdefault(normalised(found[1]), set()).add(Version(found[2]))
    return versions


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dependencies() -> list[Requirement]:
    groups = PROJECT["optional-dependencies"] | PYPROJECT["dependency-groups"]
    every = [*PROJECT["dependencies"], *itertools.chain(*groups.values())]
    return [Requirement(text) for text in dict.fromkeys(every)]


# ----------------------------------------------------------------------- one set of versions


@pytest.mark.parametrize("requirement", dependencies(), ids=str)
def test_every_dependency_is_locked_within_its_bounds(requirement):
    versions = locked()[normalised(requirement.name)]
    assert all(version in requirement.specifier for version in versions), versions


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_hashes_and_agrees_with_the_others(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.findall(r"^[A-Za-z0-9._-]+==", text, flags=re.MULTILINE)
    assert len(pins) == len(re.findall(r"--hash=.*(?<!\\)$", text, flags=re.MULTILINE))
    assert len(locked()["numpy"]) == len(locked()["ipykernel"]) == 1
    assert "://" not in text  # no address of an index: whoever installs chooses it


def test_environment_is_the_lock_file_and_the_package():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, installs = environment["dependencies"]
    floor = Requirement(f"python{PROJECT['requires-python']}").specifier
    conda = Requirement(python).specifier
    assert environment["name"] == PROJECT["name"]
    assert [str(part) for part in floor] == [str(p) for p in conda if p.operator == ">="]
    assert pip == "pip"
    assert installs == {"pip": ["--requirement requirements.txt", "--editable ."]}


def test_conda_gets_the_locked_versions_without_hashes():
    """One hash would make pip refuse the local package beside it."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.removesuffix(" \\") for line in lines if not line.startswith("    --hash=")]
    assert (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines() == pins
    assert not any("--hash" in pin for pin in pins)


# ------------------------------------------------------------------------ nothing heavy or local


def test_no_large_file_is_tracked():
    large = [name for name in tracked() if (ROOT / name).stat().st_size > LARGEST]
    assert large == []


def test_nothing_generated_is_tracked():
    generated = re.compile(r"\.ipynb$|^_build/|^book/nb/|^data/results/quick/|\.pyc$")
    assert [name for name in tracked() if generated.search(name)] == []


def test_no_path_of_a_machine_is_in_a_tracked_file():
    local = re.compile(rb"(?<![\w.])/(?:home|root|Users|work|tmp/\w+_jobs)/[\w.-]+")
    found = {}
    for name in tracked():
        if (ROOT / name).suffix not in {".png", ".woff", ".ico"} and name != "requirements.lock":
            paths = local.findall((ROOT / name).read_bytes())
            if paths:
                found[name] = paths
    assert found == {}


@pytest.mark.parametrize("name", ["LICENSE", "CITATION.cff", "README.md", "CHANGELOG.md"])
def test_the_repository_says_what_it_is(name):
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_citation_agrees_with_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"]


# --------------------------------------------------------------------------- commands and pages


def test_no_folder_of_tests_is_passed_over(pytestconfig):
    """By its name, that is: pytest looks into no folder "build" unless it is told to."""
    passed_over = pytestconfig.getini("norecursedirs")
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("src/**/*.py")]
    folders = {part for path in files for part in path.relative_to(ROOT).parts[:-1]}
    assert {"build", "bounds", "chapter_5"} <= folders
    lost = {(f, p) for f in folders for p in passed_over if fnmatch.fnmatch(f, p)}
    assert lost == set()


def test_every_target_is_explained():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[1].split()
    rules = re.findall(r"^([a-z]+):", text, flags=re.MULTILINE)
    assert sorted(targets) == sorted(rules)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    explained = re.findall(r"^  ([a-z]+) +\S+ \S+", shown.stdout, flags=re.MULTILINE)
    assert sorted(explained) == sorted(targets)


def test_every_page_is_in_the_table_of_contents_and_the_other_way_round():
    sources = {
        path.relative_to(ROOT / "notebooks").with_suffix("").as_posix()
        for path in (ROOT / "notebooks").rglob("*.md")
        if ".ipynb_checkpoints" not in path.parts
    }
    assert set(site.pages(ROOT)) == sources
    assert len(site.pages(ROOT)) == len(sources)  # none twice
    prose = [entry for entry in site.toc_entries(ROOT) if not entry.startswith(site.PAGES)]
    assert [entry for entry in prose if not (ROOT / f"{entry}.md").is_file()] == []
    written = {path.relative_to(ROOT).with_suffix("").as_posix() for path in book_pages()}
    assert set(prose) == written


def book_pages() -> list[Path]:
    pages = (ROOT / "book").rglob("*.md")
    elsewhere = {"nb", "slides"}  # executed, or no pages
    return [path for path in pages if elsewhere.isdisjoint(path.relative_to(ROOT / "book").parts)]


def test_no_two_public_classes_share_a_name():
    classes = Counter(
        node.name
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_a_function_has_at_most_seven_parameters():
    many = {
        f"{file.stem}.{node.name}"
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
        if len({a.arg for a in [*node.args.args, *node.args.kwonlyargs]} - {"self", "cls"}) > 7
    }
    assert not many


def test_no_source_file_is_longer_than_650_lines():
    lengths = {p: p.read_text().count("\n") for p in (ROOT / "src").rglob("*.py")}
    assert [path for path, length in lengths.items() if length > 650] == []


def test_no_two_modules_and_no_two_public_classes_share_a_name():
    files = [p for p in (ROOT / "src").rglob("*.py") if not p.name.startswith("__")]
    names = Counter(path.stem for path in files)
    names.update(
        node.name
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_public_module_is_on_an_api_page():
    documented = set()
    for page in (ROOT / "book" / "api").glob("*.md"):
        documented |= set(re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8")))
    modules = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "src").rglob("*.py")
    }
    public = {name for name in modules if not any(p.startswith("_") for p in name.split("."))}
    internals = {*PACKAGES} | {
        f"companion.build{name}"
        for name in ("", ".mutated_page", ".reads", ".scorecard", ".site", ".typed")
    }
    assert public - internals == documented


# ------------------------------------------------------------------------- recorded tables


def test_no_recorded_table_is_older_than_its_code():
    """Known from ``data/results/verified.json``, without computing anything.

    Where a change can matter, the tables are computed again (``make verify PAGE=...``, or a piece
    of them with ``SAMPLE=1``) and, if they differ, recorded again; where it cannot, that is noted
    with the reason: ``make verify PAGE=... ACCEPT="reason"``. Versions of libraries are not asked
    for here: the same sources are tested with newer ones, too.
    """
    older = verified.stale(ROOT, libraries=False)
    assert not older, "older than their code:\n" + "\n".join(older)


def test_what_a_sample_computes_of_a_command_is_said():
    """A command that is not named would be run whole, for hours."""
    named = verification.load_samples(ROOT / "data" / "results" / "samples.yml")
    commands = {maker for maker in verified.recorded_tables(ROOT) if is_command(maker)}
    assert "python -m experiments.chapter_5 --run D" in commands
    assert commands - named.keys() == set()
    whole = verification.Sample()
    assert [one for one in commands if named[one] == whole] == []


def calls_of(tree: ast.Module) -> Iterator[tuple[ast.Call, object]]:
    """Calls in a program of what it imports from the packages, each with what it calls."""
    known: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in PACKAGES:
            for name in node.names:
                package = importlib.import_module(str(node.module))
                if not hasattr(package, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
                known[name.asname or name.name] = getattr(package, name.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            path = ast.unparse(node.func).split(".")
            if path[0] in known and all(part.isidentifier() for part in path):
                yield node, functools.reduce(getattr, path[1:], known[path[0]])


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem)
def test_benchmarks_call_the_packages_as_they_are(path):
    """Most of their runs take hours or other libraries, so none is part of the tests."""
    for call, called in calls_of(ast.parse(path.read_text(encoding="utf-8"))):
        names = [keyword.arg for keyword in call.keywords]
        if None not in names and not any(isinstance(each, ast.Starred) for each in call.args):
            inspect.signature(called).bind(*call.args, **dict.fromkeys(names))
