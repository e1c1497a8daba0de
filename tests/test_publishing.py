"""What a public repository runs and shows, as far as it can be checked without one."""

import json
import re
import stat
import tomllib
from pathlib import Path

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def load(path):
    # YAML 1.1 reads the key `on` as true
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in found.items()}


def steps(path):
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def targets():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[1].split())


@workflow
def test_workflow_says_when_with_what_rights_and_for_how_long(path):
    found = load(path)
    assert found["on"]
    assert found["permissions"]
    for job in found["jobs"].values():
        assert job["runs-on"] == "ubuntu-24.04"
        assert 0 < job["timeout-minutes"] <= 360
    for name in re.findall(r"needs: (\S+)", path.read_text(encoding="utf-8")):
        assert name in found["jobs"]


@workflow
def test_actions_are_githubs_own_and_pinned(path):
    for step in steps(path):
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


@workflow
def test_workflow_runs_commands_of_the_readme(path):
    for step in steps(path):
        for line in step.get("run", "").splitlines():
            command, *arguments = line.split() or [""]
            if command == "make":
                assert arguments[0] in targets(), line
            if command.startswith(".ci/"):
                assert (ROOT / command).stat().st_mode & stat.S_IXUSR, line


def test_pythons_are_supported():
    versions = re.findall(r'"(3\.\d+)"', "".join(path.read_text() for path in WORKFLOWS))
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert versions
    assert min(int(v.split(".")[1]) for v in versions) == int(floor.split(".")[1])


@pytest.mark.parametrize("path", [p for p in FORMS if p.stem != "config"], ids=lambda p: p.stem)
def test_issue_form_is_one(path):
    form = load(path)
    assert form["name"]
    assert form["description"]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for part in form["body"]:
        assert part["type"] in {"markdown", "input", "textarea", "dropdown"}
        assert part["attributes"].get("value" if part["type"] == "markdown" else "label")
        if part["type"] == "dropdown":
            assert len(part["attributes"]["options"]) > 1


def test_zenodo_and_citation_say_the_same():
    zenodo = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    citation = load(ROOT / "CITATION.cff")
    names = [author.get("name") for author in citation["authors"]]
    assert [creator["name"] for creator in zenodo["creators"]] == names
    for same in ("title", "license", "keywords"):
        assert zenodo[same] == citation[same]
    assert zenodo["version"] == str(citation["version"]) == PROJECT["version"]


def test_binder_and_devcontainer_use_the_lock():
    binder = ROOT / ".binder"
    lines = (binder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    named = [line.removeprefix("-r ") for line in lines if line.startswith("-r ")]
    assert "--require-hashes" in lines
    assert {(binder / name).resolve().name for name in named} == {
        "requirements.lock",
        "requirements-lab.lock",
    }
    assert all((binder / name).is_file() for name in named)
    assert (binder / "postBuild").stat().st_mode & stat.S_IXUSR
    python = (binder / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert f"-{python}-" in container["image"]
    assert container["postCreateCommand"] == "make venv"


def test_pictures_of_the_site_are_there():
    config = load(ROOT / "_config.yml")
    assert (ROOT / config["html"]["favicon"]).is_file()
    with Image.open(ROOT / "book" / "_static" / "social.png") as picture:
        assert picture.size == (1200, 630)
