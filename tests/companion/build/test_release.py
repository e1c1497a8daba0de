"""What a release holds, and when there is none."""

import subprocess

import pytest

from companion.build import notebooks, pdf, release, site

VERSION = "1.2.3"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A repository whose site, PDF and notebooks are today's."""
    monkeypatch.setattr(site, "reason", lambda _: None)
    monkeypatch.setattr(pdf, "edition_of", lambda _: "2026-01-02, commit abc")
    files = {
        "pyproject.toml": f'[project]\nversion = "{VERSION}"\n',
        f"{site.SITE}/index.html": "page",
        str(pdf.PRODUCT): "%PDF",
        str(pdf.EDITION): "2026-01-02, commit abc",
        f"{notebooks.PLACE}/book.zip": "book",
        f"{notebooks.PLACE}/dprl-1.2.3-py3-none-any.whl": "wheel",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_folder_holds_everything_with_checksums(made, monkeypatch):
    monkeypatch.chdir(made)
    assert release.main([f"v{VERSION}"]) == 0
    place = made / release.PLACE
    names = {
        "SHA256SUMS",
        "dprl-1.2.3-py3-none-any.whl",
        "on-privacy-for-rl-1.2.3-book.zip",
        "on-privacy-for-rl-1.2.3-site.zip",
        "on-privacy-for-rl-1.2.3.pdf",
    }
    assert {path.name for path in place.iterdir()} == names
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=place, capture_output=True
    )
    assert done.returncode == 0
    assert done.stdout.count(b": OK") == len(names) - 1


def test_the_tag_is_that_of_the_package(made):
    with pytest.raises(release.ReleaseError, match="the tag is v9, but the package is version"):
        release.collect(made, "v9")


def test_an_old_site_is_refused(made, monkeypatch):
    monkeypatch.setattr(site, "reason", lambda _: "book/intro.md changed")
    with pytest.raises(release.ReleaseError, match=r"book/intro\.md changed.*make book"):
        release.collect(made)


@pytest.mark.parametrize("missing", [True, False])
def test_an_old_pdf_is_refused(made, missing):
    if missing:
        (made / pdf.EDITION).unlink()
    else:
        (made / pdf.EDITION).write_text("2025-01-02, commit old")
    with pytest.raises(release.ReleaseError, match="not that of 2026-01-02, commit abc: make pdf"):
        release.collect(made)


def test_a_tag_needs_a_commit(made, monkeypatch, capsys):
    changed = "2026-01-02, commit abc" + pdf.CHANGED
    monkeypatch.setattr(pdf, "edition_of", lambda _: changed)
    (made / pdf.EDITION).write_text(changed)
    assert release.collect(made)[-1].name == release.SUMS
    monkeypatch.chdir(made)
    assert release.main([f"v{VERSION}"]) == 1
    assert "a commit of its own" in capsys.readouterr().err
