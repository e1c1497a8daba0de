"""Pages written by several processes, with a sidebar made from titles: the same as without."""

from pathlib import Path

from companion.build import site

EXTENSIONS = Path(__file__).resolve().parents[2] / "book" / "_ext"
CONFIG = """\
title: A book
only_build_toc_files: true
execute: {{execute_notebooks: "off"}}
sphinx:
  local_extensions: {{{}}}
"""
# Chapters with and without headings of their own, and pages below them.
TOC = """\
format: jb-book
root: a
parts:
- caption: One
  chapters: [{file: b, sections: [{file: c}, {file: d, sections: [{file: e}]}]}]
- chapters: [{file: f}]
"""
HEADINGS = "\n\n## First\n\nText.\n\n### Deeper\n\nText.\n\n## Second\n\nText.\n"


def render(folder: Path, extensions: str, text: str = "") -> tuple[int, str]:
    folder.mkdir()
    (folder / "_config.yml").write_text(CONFIG.format(extensions))
    (folder / "_toc.yml").write_text(TOC)
    for name in "abcde":
        (folder / f"{name}.md").write_text(f"# Page *{name}*{HEADINGS if name in 'bce' else ''}")
    (folder / "f.md").write_text(f"# Page f\n\n{text}\n")
    done = site.jupyter_book(folder, "-W", "-n", "--keep-going")
    return done.returncode, done.stdout


def test_the_pages_are_the_same(tmp_path):
    plain, fast = tmp_path / "plain", tmp_path / "fast"
    assert render(plain, "")[0] == 0
    assert render(fast, f"writing: {EXTENSIONS}")[0] == 0
    for name in "abcdef":
        html = (fast / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")
        assert html == (plain / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")
        assert html.count("toctree-l") >= 5


def test_a_warning_while_a_page_is_written_is_an_error(tmp_path):
    wrong = "```{code-block} no-such-language\nx\n```"
    status, said = render(tmp_path / "fast", f"writing: {EXTENSIONS}", wrong)
    assert status != 0
    assert "no-such-language" in said
