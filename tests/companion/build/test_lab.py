"""Copies of the pages for JupyterLab: what a reader changed stays, the rest follows the book."""

import json

import pytest
import yaml

from companion.build import lab, plain
from companion.files import write_atomic

PAGES = ["3-chapter/one", "3-chapter/two"]


SOURCE = """---
kernelspec: python3
---

# Title

:::{glue:figure} curve
:name: fig-a
:alt: A curve.

It ends at {glue:text}`end`.
:::

:::{prf:theorem} A bound
:label: thm-a

By [the page](../2-b/two.ipynb) it is {glue:text}`end`.
:::

```{code-cell} ipython3
:tags: [hide-input]

print("{glue:text}`end`")
```
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "names_of_book", lambda *_: plain.Names(numbers={"fig-a": "3.1.1"}))
    macros = r"norm: ['\left\lVert #1 \right\rVert', 1]"
    config = f"sphinx: {{config: {{mathjax3_config: {{tex: {{macros: {{{macros}}}}}}}}}}}\n"
    write_atomic(tmp_path / "_config.yml", config)
    for page in PAGES:
        write_atomic(tmp_path / f"notebooks/{page}.md", f"{page}, first\n")
    return tmp_path


def test_a_changed_copy_stays_and_the_others_follow_the_book(root):
    assert lab.copy_pages(root, PAGES) == []
    mine, theirs = (root / lab.PLACE / f"{page}.md" for page in PAGES)
    mine.write_text("mine")
    for page in PAGES:
        write_atomic(root / f"notebooks/{page}.md", f"{page}, second\n")
    for _ in range(2):
        assert lab.copy_pages(root, PAGES) == [PAGES[0]]
        assert mine.read_text() == "mine"
        assert theirs.read_text().endswith(f"\n\n{PAGES[1]}, second\n")
    mine.unlink()
    assert lab.copy_pages(root, PAGES) == []
    assert mine.read_text().endswith(f"\n\n{PAGES[0]}, second\n")
    front = yaml.safe_load(mine.read_text().split("---\n")[1])
    assert front == {"math": {"\\norm": r"\left\lVert #1 \right\rVert"}}


def test_what_only_the_site_can_make_stands_as_it_came_out(root):
    write_atomic(root / "notebooks/3-chapter/one.md", SOURCE)
    book = {"mime_prefix": "application/papermill.record/"}
    outputs = [
        {
            "metadata": {"scrapbook": book | {"name": name}},
            "data": {book["mime_prefix"] + kind: text},
        }
        for name, kind, text in (
            ("curve", "image/svg+xml", "<svg/>"),
            ("end", "text/plain", "'20'"),
        )
    ]
    cells = [{"cell_type": "code", "source": "", "outputs": outputs}]
    write_atomic(root / "book/nb/3-chapter/one.ipynb", json.dumps({"cells": cells}))
    lab.copy_pages(root, PAGES)
    place = root / lab.PLACE / "3-chapter"
    assert (place / "figures/one--curve.svg").read_text() == "<svg/>"
    head, _, body = (place / "one.md").read_text().partition("# Title\n\n")
    assert head.startswith("---\nkernelspec: python3\n---\n\n---\nmath:\n")
    assert body == (
        "![A curve.](figures/one--curve.svg)\n\n*Fig. 3.1.1.* It ends at 20.\n\n"
        ":::{prf:theorem} A bound\n\nBy [the page](../2-b/two.md) it is 20.\n:::\n\n"
        '```{code-cell} ipython3\n:tags: [hide-input]\n\nprint("{glue:text}`end`")\n```\n'
    )


def test_the_lab_sees_the_package_and_opens_pages_as_notebooks(root):
    values = lab.environment(root)
    assert values["PYTHONPATH"] == str(root / "src")
    settings = root / lab.PLACE / ".jupyter/labconfig/default_setting_overrides.json"
    assert "Jupytext Notebook" in json.dumps(json.loads(settings.read_text()))
    config = root / lab.PLACE / ".ipython/profile_default/ipython_kernel_config.py"
    assert "companion.outcomes" in config.read_text()
