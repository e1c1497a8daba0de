"""A page with a reader's own values: what is shown, what is refused, what is not touched."""

import pytest
import yaml

from companion.build import execution, play
from companion.files import write_atomic

PAGE = "3-chapter/page"
SOURCE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A page

```{code-cell} ipython3
:tags: [parameters]

profile = "quick"
seed = 1
epsilon = 0.5
```

```{code-cell} ipython3
runs = {"quick": 20, "paper": 300}[profile]
n, sizes = 5, [k for k in range(3)]
twice = 2 * n
from companion import claims
other = 1

assert epsilon < 1
claims.check("thesis:small", printed=epsilon < 1, epsilon=epsilon)
print("the end", epsilon)
print("sizes", runs, n, twice, other)
```
"""
CLAIM = {
    "id": "thesis:small", "source": "thesis", "title": "Small", "statement": "It is small.",
    "expected": "holds", "page": PAGE,
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("play") / "repository"
    write_atomic(root / f"notebooks/{PAGE}.md", SOURCE)
    write_atomic(root / "book/claims.yml", yaml.safe_dump([CLAIM]))
    return root


def tried(root, **values):
    return execution.try_page(execution.PageRun(root, PAGE, "quick", tried=values))


def text_of(notebook):
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    return "\n".join(
        out.get("text", "") + out.get("data", {}).get("text/plain", "") for out in outputs
    )


def test_outcomes_that_differ_are_shown_and_the_page_goes_on(root):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    text = text_of(tried(root, epsilon=2))
    assert "With these values this does not hold: epsilon < 1" in text
    assert "undecided (with the book's values: holds): thesis:small" in text
    assert "the end 2" in text
    made = {path for path in root.rglob("*") if path.is_file()} - before.keys()
    assert all("_build" in path.parts for path in made)
    assert {path: path.read_bytes() for path in before} == before


def test_with_the_values_of_the_book_nothing_is_added(root):
    text = text_of(tried(root))
    assert "holds: thesis:small" in text
    assert "with the book" not in text
    assert "does not hold" not in text


def test_an_unknown_parameter_is_refused_with_the_names_of_those_there_are(root):
    with pytest.raises(
        execution.PageError, match="no parameter eps; it has profile, seed, epsilon, runs"
    ):
        tried(root, eps=1)


def test_sizes_that_depend_on_the_profile_can_be_tried_too(root):
    assert "sizes 20 5 10 1" in text_of(tried(root, epsilon=0.1))
    assert "sizes 7 6 12 1" in text_of(tried(root, runs=7, n=6))
    known = "profile, seed, epsilon, runs, n, sizes, twice$"
    for name in ("other", "k"):  # assigned after an import, and inside an expression
        with pytest.raises(execution.PageError, match=f"no parameter {name}; it has {known}"):
            tried(root, **{name: 3})


@pytest.mark.parametrize("text", ["epsilon", "=1", "0x=1", "a b=1"])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(execution.PageError, match="name=value"):
        play.parse_values([text])


def test_only_the_page_is_rendered(root, monkeypatch):
    for name in ("book/_ext/x.py", "book/_static/x.css", "book/references.bib", "_config.yml"):
        write_atomic(root / name, "")
    write_atomic(root / "book/nb/other.claims.json", "[]")
    seen = {}

    def build(cwd, *options):
        seen["toc"] = yaml.safe_load((cwd / "_toc.yml").read_text())
        seen["files"] = sorted(str(p.relative_to(cwd)) for p in cwd.rglob("*") if p.is_file())
        return type("Done", (), {"returncode": seen.get("returncode", 0), "stdout": "the cause"})

    monkeypatch.setattr(play, "jupyter_book", build)
    page = play.render(root, PAGE, {"cells": []})
    assert page == root / f"_build/play/_build/html/book/nb/{PAGE}.html"
    assert seen["toc"] == {"format": "jb-book", "root": f"book/nb/{PAGE}"}
    assert f"book/nb/{PAGE}.ipynb" in seen["files"]
    assert "book/nb/other.claims.json" in seen["files"]
    seen["returncode"] = 1
    with pytest.raises(execution.PageError, match=r"the notebook is _build/play[^$]*the cause"):
        play.render(root, PAGE, {"cells": []})


def test_the_command_says_what_is_wrong(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert play.main(["3-chapter/none"]) == 1
    assert "no such page" in capsys.readouterr().err
    assert play.main([PAGE, "profile=large"]) == 1
    assert "quick, paper" in capsys.readouterr().err
