"""Copies of the pages for JupyterLab: what a reader changed stays, the rest follows the book."""

import json

import pytest

from companion.build import lab
from companion.files import write_atomic

PAGES = ["3-chapter/one", "3-chapter/two"]


@pytest.fixture
def root(tmp_path):
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
        assert theirs.read_text() == f"{PAGES[1]}, second\n"
    mine.unlink()
    assert lab.copy_pages(root, PAGES) == []
    assert mine.read_text() == f"{PAGES[0]}, second\n"


def test_the_lab_sees_the_package_and_opens_pages_as_notebooks(root):
    values = lab.environment(root)
    assert values["PYTHONPATH"] == str(root / "src")
    settings = root / lab.PLACE / ".jupyter/labconfig/default_setting_overrides.json"
    assert "Jupytext Notebook" in json.dumps(json.loads(settings.read_text()))
    config = root / lab.PLACE / ".ipython/profile_default/ipython_kernel_config.py"
    assert "companion.outcomes" in config.read_text()
