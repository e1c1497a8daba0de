"""What code reaches: in small packages whose answer is known, and in this repository."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions, version

import pytest

from companion import dependencies
from companion.build import site
from companion.dependencies import OWN_ROOT, Sources, sources_of, versions_of
from companion.files import source_path
from companion.page_code import code_of_page
from companion.units import digest_of, program_of, units_of
from experiments.chapter_5 import leaks

SOURCES = {
    "__init__": "",
    "alone": "X = 1\nY = 2",
    "base": "import numpy as np\ndef f(): return np.ones(1)\ndef unused(): return 1",
    "group/__init__": "from pkg.group.one import g\nfrom .two import h as k\nfrom . import two",
    "group/one": "def g():\n    from pkg import base\n    return base.f()",
    "group/two": "from . import one\nimport yaml\ndef h(): return one.g()\ndef i(): return yaml",
    "effect": "import warnings\nfrom pkg.alone import X\nwarnings.warn(X)",
    "lazy": "def __getattr__(name): return __import__('pkg.alone').alone",
    "types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg import alone\n"
    "def f(x: 'alone.X') -> int: return 1",
    "table": "from pkg.base import f\nTABLE = {'f': f}\nclass C:\n    def m(self): return TABLE",
    "handlers": "from pkg.table import C\n@C.register\ndef _(x): return 1",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in SOURCES.items():
        path = tmp_path / "pkg" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def reached(folder, code, **options):
    return Sources(folder).reached(program_of(ast.parse(code)), **options)


@pytest.mark.parametrize(
    ("code", "modules", "libraries"),
    [
        ("import numpy", "", ""),
        ("import numpy\nnumpy.ones(1)", "", "numpy"),
        ("import json\njson.dumps(1)", "", ""),
        ("from pkg import alone\nalone.X", "alone", ""),
        ("from pkg import alone", "", ""),
        ("import pkg.alone\npkg.alone.X", "alone", ""),
        ("import pkg.alone as a\na.X", "alone", ""),
        ("from pkg import group as a\na.g()", "base group group.one", "numpy"),
        ("from pkg import group as a\na.two.h()", "base group.one group.two", "numpy"),
        ("from pkg.group import k\nk()", "base group group.one group.two", "numpy"),
        ("from pkg.group import two\ntwo.i", "group.two", "yaml"),
        ("from pkg.group import two\nprint(two)", "base group.one group.two", "numpy yaml"),
        ("from pkg.group.two import *", "base group.one group.two", "numpy yaml"),
        ("import pkg.effect", "", ""),
        ("from pkg import effect", "alone effect", ""),
        ("from pkg.types import f\nf(1)", "types", ""),
        ("from pkg.table import C\nC().m()", "base table", "numpy"),
        ("from pkg import handlers", "base handlers table", "numpy"),
        ("def run():\n    from pkg.alone import X\n    return X", "alone", ""),
    ],
)
def test_names_are_followed_through_imports(folder, code, modules, libraries):
    found = reached(folder, code)
    assert " ".join(m.removeprefix("pkg.") for m in found.modules) == modules
    assert " ".join(found.libraries) == libraries


def test_a_lazy_package_reaches_what_has_the_name(folder):
    (folder / "pkg/__init__.py").write_text("def __getattr__(name): return find(name)")
    assert list(reached(folder, "import pkg\npkg.unused()").modules) == ["pkg", "pkg.base"]
    (folder / "pkg/__init__.pyi").write_text("from pkg.base import f as f\n")
    assert list(reached(folder, "from pkg import f\nf()").modules) == ["pkg", "pkg.base"]
    assert reached(folder, "from pkg import f\nf()").libraries == ("numpy",)


def test_a_module_that_no_import_names_is_reached_whole_if_it_was_loaded(folder):
    code = "import importlib\nimportlib.import_module('pkg.alone')"
    assert reached(folder, code).modules == {}
    assert list(reached(folder, code, loaded=["pkg.alone", "pkg"]).modules) == ["pkg.alone"]


@pytest.mark.parametrize(
    ("module", "old", "new", "same"),
    [
        ("alone", "X = 1", "X = 3", False),
        ("alone", "Y = 2", "Y = 3", True),
        ("alone", "X = 1", "'What X is.'\nX = 1  # one", True),
        ("base", "ones(1)", "ones(2)", False),
        ("base", "return 1", "return 2", True),
        ("base", "def f()", "def f() -> int", True),
        ("base", "import numpy as np", "import jax.numpy as np", False),
    ],
)
def test_what_is_reached_counts_and_nothing_else(folder, module, old, new, same):
    code = "from pkg import alone, base\nalone.X, base.f()"
    before = reached(folder, code)
    path = folder / "pkg" / f"{module}.py"
    changed = path.read_text().replace(old, new)
    assert changed != path.read_text()
    path.write_text(changed)
    assert (reached(folder, code).modules == before.modules) == same


def test_what_was_read_is_kept_and_never_trusted_for_other_contents(folder, monkeypatch):
    cache = folder / "kept.json"
    first = Sources(folder, cache)
    answer = first.reached(names=["pkg.group.k"])
    first.keep()
    second = Sources(folder, cache)
    monkeypatch.setattr(dependencies, "units_of", lambda *_: pytest.fail("read again"))
    assert second.reached(names=["pkg.group.k"]) == answer
    monkeypatch.undo()
    (folder / "pkg/base.py").write_text("def f(): return 2")
    assert Sources(folder, cache).reached(names=["pkg.group.k"]) != answer
    for nonsense in ("", "[]", '{"reader": 1}'):
        cache.write_text(nonsense)
        (folder / "pkg/base.py").write_text(SOURCES["base"])
        assert Sources(folder, cache).reached(names=["pkg.group.k"]) == answer


def test_an_empty_text_between_the_parts_of_a_formatted_one_means_nothing():
    """Python 3.12.1 reads ``f"{x:<{n}}"`` with one, other versions without."""
    tree, other = (ast.parse('f"{x:<{n}}"') for _ in range(2))
    parts = next(n for n in ast.walk(other) if isinstance(n, ast.FormattedValue)).format_spec
    parts.values = [p for p in parts.values if getattr(p, "value", None) != ""]
    parts.values.append(ast.Constant(""))
    assert digest_of(tree) == digest_of(other)


def test_what_is_no_program_of_the_repository_is_refused(folder):
    with pytest.raises(ValueError, match="in no module"):
        Sources(folder).reached(names=["elsewhere.f"])
    with pytest.raises(ValueError, match=r"no program of this repository: 'python coffee\.py'"):
        dependencies.recorded_by(folder, "python coffee.py")
    with pytest.raises(ValueError, match="in no module"):
        dependencies.code_of(len)


# -- this repository --------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository's sources and pages, to be changed."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("src", "notebooks"):
        shutil.copytree(OWN_ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(scope="module")
def pages():
    return site.pages(OWN_ROOT)


def test_installed_packages_have_the_same_code_as_in_the_repository(copy, tmp_path):
    installed = tmp_path / "site-packages"
    shutil.copytree(copy / "src", installed)
    (installed / "another.py").write_text("x = 1\n")
    program = (
        "from companion.dependencies import code_of, own_sources\n"
        "from experiments.chapter_5 import leaks\n"
        "assert 'another' not in own_sources()\n"
        "print(code_of(leaks.run))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [dependencies.code_of(leaks.run)]
    assert not (tmp_path / "_build").exists()


def of_all_pages(root, pages):
    sources = sources_of(root)
    found = {page: sources.reached(sources.page(root, page)) for page in pages}
    sources.keep()
    return found


@pytest.fixture(scope="module")
def original(copy, pages):
    return of_all_pages(copy, pages)


def test_a_docstring_or_a_comment_changes_no_page(copy, pages, original):
    texts = {path: path.read_text() for path in (copy / "src").rglob("*.py")}
    for path, text in texts.items():
        said = re.sub(r'^( *)"""(?=[A-Z])', r'\1"""Indeed: ', text, flags=re.MULTILINE)
        path.write_text(f"{said}\n# so it is\n")
    assert of_all_pages(copy, pages) == original
    for path, text in texts.items():
        path.write_text(text)


def bounds():
    """Every function of the bounds whose name only one has, as (module, name)."""
    found = [
        (path.stem, node.name)
        for path in sorted((OWN_ROOT / "src/dprl/bounds").glob("[a-z]*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    names = [name for _, name in found]
    return [(module, name) for module, name in found if names.count(name) == 1]


@pytest.mark.parametrize(("module", "name"), bounds()[::9])
def test_a_changed_bound_concerns_the_pages_that_reach_it(copy, pages, original, module, name):
    path = copy / "src/dprl/bounds" / f"{module}.py"
    text = path.read_text()
    node = next(n for n in ast.parse(text).body if getattr(n, "name", "") == name)
    lines = text.splitlines()
    body = node.body[0]
    lines.insert((body.end_lineno if ast.get_docstring(node) else body.lineno - 1), "    _ = 1")
    path.write_text("\n".join(lines) + "\n")
    now = of_all_pages(copy, pages)
    path.write_text(text)
    stale = {page for page in pages if now[page] != original[page]}
    used = {
        page: re.findall(rf"\w\.{name}\b", code_of_page(source_path(copy, page).read_text()))
        for page in pages
    }
    near = {page for page in pages if f"dprl.bounds.{module}" in original[page].modules}
    assert {page for page in near if used[page]} <= stale
    assert stale <= near
    assert len(stale) < len(pages) / 2


def test_every_import_of_the_repository_is_understood():
    """No name that a module imports from the repository leads nowhere."""
    sources = sources_of(OWN_ROOT)
    for path in (OWN_ROOT / "src").rglob("*.py"):
        parts = path.relative_to(OWN_ROOT / "src").with_suffix("").parts
        package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if package else parts)
        for unit in units_of(ast.parse(path.read_text()), module, package):
            source, name = unit.origin or ("", "")
            if source in sources and name:
                known = name in sources.module(source).named or f"{source}.{name}" in sources
                assert known, (module, unit.origin)


def test_a_distribution_is_found_by_what_it_says_of_itself(monkeypatch):
    """As by its files, which takes ten times as long to look through."""
    by_files = packages_distributions()
    said = dependencies._distributions()
    assert "yaml" in said
    for package in said.keys() & by_files.keys():
        assert {*said[package]} <= {*by_files[package]}, package
    monkeypatch.setattr(dependencies, "_all_distributions", lambda: pytest.fail("not needed"))
    found = versions_of(["numpy", "yaml"])
    assert found == {"numpy": version("numpy"), "PyYAML": version("PyYAML")}


def test_a_distribution_that_says_nothing_of_itself_is_found_by_its_files(monkeypatch):
    monkeypatch.setattr(dependencies, "_distributions", dict)
    assert versions_of(["yaml", "no_such_package"]) == {"PyYAML": version("PyYAML")}
