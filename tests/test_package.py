"""What a stranger installs: the names in front, the parts, the wheel in an empty environment."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import dprl
from companion.page_code import code_of_page

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dprl"
API = ROOT / "book" / "api"


def run(code, *flags, **environment):
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


# ------------------------------------------------------------------------- the names in front


def test_importing_the_package_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import dprl; print(set(sys.modules) - before)"
    loaded = ast.literal_eval(run(code, PYTHONPATH=str(ROOT / "src")))
    assert {name.split(".")[0] for name in loaded} <= {"dprl", *sys.stdlib_module_names}
    assert [name for name in loaded if name.startswith("dprl.")] == []


@pytest.mark.parametrize("name", dprl.__all__)
def test_a_name_in_front_is_that_of_its_part_and_says_what_it_is(name):
    value = getattr(dprl, name)
    assert value.__name__ == name
    assert value is getattr(sys.modules[value.__module__], name)
    first = value.__doc__.splitlines()[0]
    assert first.endswith((".", ")"))


def test_a_name_that_is_not_in_front_is_a_plain_error():
    with pytest.raises(AttributeError, match="module 'dprl' has no attribute 'nothing'"):
        dprl.nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec("from dprl import nothing")
    assert set(dprl.__all__) <= set(dir(dprl))


def test_the_cheat_sheet_lists_the_names_in_front():
    text = (API / "cheat-sheet.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ~(dprl\.\S+)\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted(name for _, name in listed) == dprl.__all__
    assert all(
        getattr(importlib.import_module(part), name) is getattr(dprl, name) for part, name in listed
    )


# ------------------------------------------------------------------------- what pages import


@functools.cache
def code_of(page):
    """The program of a page."""
    return ast.parse(code_of_page(page.read_text(encoding="utf-8")))


def defined(tree):
    """Names that a program gives to things of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def imported(part, name):
    """What ``from part import name`` gives, also of a module that nobody has imported yet."""
    found = getattr(importlib.import_module(part), name, None)
    return importlib.import_module(f"{part}.{name}") if found is None else found


def is_module(name):
    return (PACKAGE.parent / name.replace(".", "/")).with_suffix(".py").exists() or (
        PACKAGE.parent / name.replace(".", "/") / "__init__.py"
    ).exists()


def used(tree):
    """What a program takes from the package: module that it goes through, and name."""
    parts = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dprl":
            for alias in node.names:
                if is_module(f"{node.module}.{alias.name}") and alias.name not in dprl.__all__:
                    parts[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            part = parts.get(node.value.id)
            if part is not None:
                yield part, node.attr


PAGES = sorted((ROOT / "notebooks").rglob("*.md"))


def test_what_many_pages_use_stands_in_front():
    pages = Counter(
        name
        for page in PAGES
        for name in {name for part, name in used(code_of(page)) if "bounds" not in part}
    )
    assert {name for name, count in pages.items() if count >= 7} <= set(dprl.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_takes_the_names_in_front_from_the_package(page):
    tree = code_of(page)
    around = {
        f"{part}.{name}"
        for part, name in set(used(tree))
        if part != "dprl" and name in dprl.__all__ and name not in set(defined(tree))
        if imported(part, name) is getattr(dprl, name)
    }
    assert around == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_shows_no_private_name(page):
    names = set()
    for node in ast.walk(code_of(page)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((getattr(node, "module", None) or "").split("."))
            names.update(part for alias in node.names for part in alias.name.split("."))
    assert {name for name in names if re.match(r"_(?!_)", name)} == set()


# --------------------------------------------------------------------------------- the parts


def parts(package):
    """Modules and packages right below a package."""
    below = (ROOT / "src" / package).iterdir()
    found = {path.stem for path in below if path.suffix == ".py" or (path / "__init__.py").exists()}
    return {name for name in found if not name.startswith("_")}


def test_the_package_names_its_parts():
    named = re.findall(r"``(\w+)``", dprl.__doc__)
    assert sorted(named) == sorted(parts("dprl"))


@pytest.mark.parametrize("package", ["dprl", "experiments", "companion"])
def test_the_api_index_lists_every_part(package):
    index = (API / "index.md").read_text(encoding="utf-8")
    assert f"`{package}`" in index
    assert parts(package) <= set(re.findall(r"`(\w+)`", index))


def test_the_api_index_lists_every_page():
    index = (API / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\{doc\}`([\w-]+)`", index)) == {p.stem for p in API.glob("*.md")} - {
        "index"
    }


# --------------------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, and the folder into which it was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--disable-pip-version-check", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(command, check=True)
    return wheel, folder / "site"


def test_the_wheel_holds_the_package_and_nothing_else(installed):
    wheel, _ = installed
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert names == {"dprl", f"dprl-{dprl.__version__}.dist-info"}


def test_the_example_of_the_readme_runs_from_the_wheel(installed):
    """With the libraries of this environment, but without what else it has of this repository."""
    _, site = installed
    readme = (ROOT / "src" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    path = os.pathsep.join([str(site), sysconfig.get_paths()["purelib"]])
    checks = (
        "import sys, importlib.util as u\n"
        f"assert sys.modules['dprl'].__file__.startswith({str(site)!r})\n"
        "assert not u.find_spec('companion') and not u.find_spec('experiments')\n"
        "assert not {'pandas', 'joblib', 'jax', 'mujoco'} & set(sys.modules)\n"
    )
    # -S: the paths that an editable installation adds are not followed
    out = run(example + checks, "-S", PYTHONPATH=path)
    assert out.startswith("(1, 1e-05)-differentially private")
