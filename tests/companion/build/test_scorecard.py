"""Every claim has one row that leads to where it is computed; anything else is an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion import claims
from companion.build import scorecard
from companion.claims import ClaimError

PAGE = "3-policy-evaluation/dp-lsw"

SOURCE = """\
---
kernelspec: {name: python3, language: python, display_name: Python 3}
---

# DP-LSW: a private average

```{code-cell} ipython3
claims.check("thesis:3.1", printed=False, corrected=True, worst_ratio=1.25, n=300_000)
claims.check(
    'thesis:figure-3.1', reproduced=True, slope=-0.5)
claims.not_checkable("xie:table-1", "The data were never published.")
```
"""
ERRATA = """\
# Errata

## False as printed

### Lemma 3.1: twice too small

Verdict: {ref}`false <claim-thesis-3-1>`.
"""
LISTED = {
    "thesis:3.1": ("false as printed", {"worst_ratio": 1.25, "n": 300_000}, ""),
    "thesis:figure-3.1": ("reproduced", {"slope": -0.5, "kind": "a|b*c`d"}, ""),
    "xie:table-1": ("not checkable", {}, "The data were never published."),
}


def claim(claim_id, expected, **changes):
    return {
        "id": claim_id,
        "source": claim_id.split(":")[0],
        "title": f"About {claim_id}, $|x|$",
        "statement": "It holds.",
        "expected": expected,
        "page": PAGE,
        **({"severity": "constant"} if expected in claims.FAULTS else {}),
    } | changes


def record(claim_id, **changes):
    verdict, numbers, reason = LISTED[claim_id]
    content = {
        "id": claim_id,
        "verdict": verdict,
        "numbers": numbers,
        "page": PAGE,
        "profile": "quick",
    }
    return content | ({"reason": reason} if reason else {}) | changes


def notebook(badges, tags=()):
    """An executed page whose one code cell shows the badges."""
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": b._repr_mimebundle_()}
        for b in badges
    ]
    cells = [
        {"cell_type": "markdown", "metadata": {}, "id": "a", "source": "# DP-LSW"},
        {
            "cell_type": "code",
            "metadata": {"tags": list(tags)},
            "id": "b",
            "source": "claims.check(...)",
            "execution_count": 1,
            "outputs": outputs,
        },
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def root(tmp_path):
    """A repository after its one page was executed."""
    put(tmp_path / "book/claims.yml", [claim(i, v) for i, (v, _, _) in LISTED.items()])
    put(tmp_path / f"notebooks/{PAGE}.md", SOURCE)
    put(tmp_path / "notebooks/3-policy-evaluation/errata.md", ERRATA)
    put(tmp_path / "book/3-policy-evaluation.md", "# Private averages\n")
    put(tmp_path / f"book/nb/{PAGE}.claims.json", [record(i) for i in LISTED])
    badges = [claims.Badge(i, v, n, r) for i, (v, n, r) in LISTED.items()]
    put(tmp_path / f"book/nb/{PAGE}.ipynb", notebook(badges))
    return tmp_path


# -- what it says -----------------------------------------------------------------------


def test_every_row_leads_to_badge_page_and_line_of_source(root):
    text = scorecard.page(root)
    for claim_id, line in [("thesis:3.1", 8), ("thesis:figure-3.1", 9), ("xie:table-1", 11)]:
        anchor = "claim-" + claim_id.replace(":", "-").replace(".", "-")
        assert f"{{ref}}`{claim_id} <{anchor}>`" in text
        path = f"notebooks/{PAGE}.md"
        assert f"{{download}}`{path}:{line} <../../{path}>`" in text
    assert "[DP-LSW: a private average](3-policy-evaluation/dp-lsw.ipynb)" in text
    assert "worst ratio = 1.25, n = 300\u202f000" in text
    assert "never published" in text


def test_summary_counts_verdicts_and_a_chapter_has_one_square_for_each_claim(root):
    text = scorecard.page(root)
    summary, chapter = text.split('<details class="scorecard-chapter">')
    counts = {"false as printed": "1: 1 constant", "reproduced": "1", "not checkable": "1"}
    for verdict, count in counts.items():
        assert f"{claims.verdict_html(verdict)}\n  - {count}\n" in summary
    assert "* - all\n  - 3\n" in summary
    assert "with deviations" not in summary
    assert chapter.startswith("<summary>3 · Private averages: 3 claims")
    assert chapter.count('class="tile ') == 3
    places = [chapter.index(f"`{claim_id} <") for claim_id in LISTED]
    assert places == sorted(places)


def test_a_fault_leads_to_the_section_of_the_errata(root):
    address = "3-policy-evaluation/errata.html#lemma-3-1-twice-too-small"
    assert scorecard.page(root).count(address) == 1


def test_numbers_of_the_paper_profile_say_so(root):
    records = [record(i, profile="paper") for i in LISTED]
    put(root / f"book/nb/{PAGE}.claims.json", records)
    assert "n = 300\u202f000 (paper profile)." in scorecard.page(root)


@given(st.text(alphabet="\\`*_{}[]<>$#|~ab ", max_size=12))
def test_text_is_escaped_so_that_no_markup_is_left(text):
    markdown_it = pytest.importorskip("markdown_it")
    html = markdown_it.MarkdownIt("commonmark").renderInline("x" + scorecard._plain(text) + "x")
    import html as standard

    assert standard.unescape(html) == f"x{text}x"


# -- what it refuses --------------------------------------------------------------------


def change_records(root, records):
    put(root / f"book/nb/{PAGE}.claims.json", records)


def without_a_record(root):
    change_records(root, [record("thesis:3.1"), record("xie:table-1")])


def with_an_unlisted_record(root):
    records = [record(i) for i in LISTED]
    change_records(root, [*records, record("thesis:3.1", id="thesis:9.9")])


def with_another_verdict(root):
    records = [record(i) for i in LISTED]
    change_records(root, [record("thesis:3.1", verdict="holds"), *records[1:]])


def with_a_record_twice(root):
    change_records(root, [record("thesis:3.1"), *(record(i) for i in LISTED)])


def with_a_record_of_another_page(root):
    change_records(root, [record(i, page="3-policy-evaluation/other") for i in LISTED])


def with_a_record_in_the_wrong_place(root):
    put(root / "notebooks/2-background/mdp.md", "# MDP\n")
    put(
        root / "book/nb/2-background/mdp.claims.json",
        [record("thesis:3.1", page="2-background/mdp")],
    )
    change_records(root, [record("thesis:figure-3.1"), record("xie:table-1")])


def without_the_executed_page(root):
    (root / f"book/nb/{PAGE}.ipynb").unlink()


def with_hidden_badges(root):
    badges = [claims.Badge(i, v, n, r) for i, (v, n, r) in LISTED.items()]
    put(root / f"book/nb/{PAGE}.ipynb", notebook(badges, tags=["remove-output"]))


def without_one_badge(root):
    put(root / f"book/nb/{PAGE}.ipynb", notebook([claims.Badge("thesis:3.1", "holds", {})]))


def without_a_source(root):
    (root / f"notebooks/{PAGE}.md").unlink()


def without_a_title(root):
    put(root / f"notebooks/{PAGE}.md", SOURCE.replace("# DP-LSW", "DP-LSW"))


def without_the_call(root):
    put(root / f"notebooks/{PAGE}.md", SOURCE.replace("xie:table-1", "xie:table-2"))


def without_a_list(root):
    (root / "book/claims.yml").unlink()


def with_a_broken_record_file(root):
    put(root / f"book/nb/{PAGE}.claims.json", "[{")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_a_record, "thesis:figure-3.1: no record; page 3-policy-evaluation/dp-lsw"),
        (with_an_unlisted_record, "thesis:9.9: recorded by .*, but not listed"),
        (with_another_verdict, "expected 'false as printed', recorded 'holds'"),
        (with_a_record_twice, "thesis:3.1: recorded twice"),
        (with_a_record_of_another_page, "says page 3-policy-evaluation/other"),
        (with_a_record_in_the_wrong_place, "checked by 2-background/mdp"),
        (without_the_executed_page, "was not executed"),
        (with_hidden_badges, "its badge is not shown"),
        (without_one_badge, "thesis:figure-3.1: its badge is not shown"),
        (without_a_source, "does not exist"),
        (without_a_title, "has no title"),
        (without_the_call, "nowhere names it"),
        (without_a_list, "claims.yml does not exist"),
        (with_a_broken_record_file, "not valid JSON"),
    ],
)
def test_damage_is_named(root, damage, message):
    damage(root)
    with pytest.raises(ClaimError, match=message):
        scorecard.page(root)


# -- in a book --------------------------------------------------------------------------

CONFIG = """\
title: A book
only_build_toc_files: true
execute: {execute_notebooks: "off"}
parse: {myst_enable_extensions: [colon_fence, dollarmath]}
sphinx: {config: {nb_render_markdown_format: myst}}
"""
TOC = f"""\
format: jb-book
root: book/nb/scorecard
chapters: [{{file: book/nb/{PAGE}}}]
"""


def test_a_strict_build_has_no_warning_and_every_link_arrives(root):
    pytest.importorskip("jupyter_book")
    put(root / "_config.yml", CONFIG)
    put(root / "_toc.yml", TOC)
    put(root / "book/nb/scorecard.md", scorecard.page(root))
    program = "from jupyter_book.cli.main import main; main()"
    arguments = ["build", str(root), "-W", "-n", "--keep-going"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = root / "_build/html/book/nb"
    html = (site / "scorecard.html").read_text()
    target = (site / f"{PAGE}.html").read_text()
    for claim_id in LISTED:
        anchor = claims.anchor(claim_id)
        assert f'href="{PAGE}.html#{anchor}"' in html
        assert target.count(f'id="{anchor}"') == 1
    downloads = list((root / "_build/html/_downloads").rglob("dp-lsw.md"))
    assert [d.read_text() for d in downloads] == [SOURCE]
    assert f"notebooks/{PAGE}.md:8" in html
    for leftover in (":::", "{ref}", "{download}", "\\|", "list-table}"):
        assert leftover not in html
