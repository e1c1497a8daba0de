"""Directives and roles as Markdown that every program shows; on all pages of the book."""

import re
from pathlib import Path

import pytest

from companion.build import plain, site
from companion.claims import Claim

ROOT = Path(__file__).resolve().parents[3]
CLAIM = Claim("thesis:1", "thesis", "t", "s", "false as printed", "p", "constant")
NAMES = plain.Names(
    titles={"thm-a": "Theorem (A bound)"},
    places={"sec-here": "3-a/page", "sec-there": "4-b/other", "ex-a": "3-a/page"},
    numbers={"eq-a": "3.1.2", "fig-a": "3.1.1"},
    works={"dwork2006": ("Dwork et al.", "2006"), "smith": ("Smith and Roe", "2011")},
    ledger={"thesis:1": CLAIM},
    evidence={"thesis:1": {"ratio": 12345.678}},
)


def text_of(markdown, **numbers):
    return plain.plain(markdown, NAMES, numbers, "3-a/page")[0]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("a {glue:text}`runs` b", "a 20 b"),
        ("{glue:text}`runs:.2f`", "20"),
        ("{prf:ref}`thm-a`", "Theorem (A bound)"),
        ("{prf:ref}`this <thm-a>`", "this"),
        ("{ref}`the verdict <claim-x>`", "the verdict"),
        ("{cite}`dwork2006,smith`", "(Dwork et al. 2006); (Smith and Roe 2011)"),
        ("{cite:t}`smith`", "Smith and Roe (2011)"),
        ("{verdict}`thesis:1`", "false as printed (constant)"),
        ("{evidence}`thesis:1 ratio ,.0f`", "12\u202f346"),
        ("{py:func}`~dprl.lsw`", "`dprl.lsw`"),
        ("[](eq-a) holds", "(3.1.2) holds"),
        ("by [the profile](eq-a)", "by the profile (3.1.2)"),
        ("{eq}`eq-a` and {numref}`fig-a`", "(3.1.2) and Fig. 3.1.1"),
        ("[below](sec-here), [an exercise](ex-a)", "below, an exercise"),
        ("[there](sec-there)", "[there](../4-b/other.ipynb)"),
        ("[nowhere](sec-nowhere)", "[nowhere](sec-nowhere)"),
        ("[notation](../../notation.md), [a](b.ipynb)", "notation, [a](b.ipynb)"),
        ("[c](https://x.org/README.md)", "[c](https://x.org/README.md)"),
        ("{unknown}`x`", "{unknown}`x`"),
        ("{glue:text}`missing`", "{glue:text}`missing`"),
        ("(sec-a)=\n## A", "## A"),
        ("`{code}` and $x_{a}`b`$", "`{code}` and $x_{a}`b`$"),
    ],
)
def test_roles(markdown, expected):
    assert text_of(markdown, runs="20") == expected


def test_a_theorem_is_a_quotation_with_its_title():
    found = text_of(
        ":::{prf:theorem} A bound (Thesis, 3.1)\n:label: thm-a\n\n"
        "It is {glue:text}`x`.\n\n$$\ny\n$$\n:::",
        x="small",
    )
    assert found == "> **Theorem (A bound (Thesis, 3.1)).**\n>\n> It is small.\n>\n> $$\n> y\n> $$"


def test_a_formula_has_its_number():
    found = text_of(":::{prf:lemma} L\n$$\nx\n$$ (eq-a)\n\n$$\ny\n$$\n:::")
    assert found.endswith("> $$\n> x\n> \\tag{3.1.2}\n> $$\n>\n> $$\n> y\n> $$")


def test_numbers_are_counted_on_each_page_that_has_one():
    names = plain.names_of_book(ROOT, site.pages(ROOT))
    assert names.numbers["fig-3-psi-over-k"] == "3.2.1"
    assert names.numbers["eq-2-gm-profile"].startswith("2.4.")
    assert names.places["sec-gpope-variance"] == "6-off-policy/convergence"
    assert plain.page_numbers(ROOT)["7-beyond/own-data"] == "7.12"
    assert "3-policy-evaluation/errata" not in plain.page_numbers(ROOT)


def test_what_is_inside_a_box_is_converted_too():
    found = text_of("::::{dropdown} Proof\n:::{prf:lemma} L\nText.\n:::\n::::\nafter")
    assert found.startswith("<details>\n<summary>Proof</summary>")
    assert "> **Lemma (L).**\n>\n> Text." in found
    assert found.endswith("</details>\n\nafter")


def test_captions_leave_the_text_and_are_given_by_name():
    text, captions = plain.plain(
        "before\n\n:::{glue:figure} curve\n:name: fig-curve\n:alt: A curve.\n\n"
        "It is {glue:text}`n`.\n:::\n\nafter\n\n"
        ":::{glue:figure} other\n:name: fig-a\n\nAs in {numref}`fig-a`.\n:::",
        NAMES,
        {"n": "3"},
    )
    assert text == "before\n\nafter"
    assert captions == {
        "curve": "*Figure.* It is 3.",
        "other": "*Fig. 3.1.1.* As in Fig. 3.1.1.",
    }


def test_exercises_and_solutions_have_headings():
    text = text_of(
        ":::{exercise-start} Main\n:label: ex\n:::\nWhy?\n:::{exercise-end}\n:::\n\n"
        ":::{solution-start} ex\n:class: dropdown\n:::\nSo.\n:::{solution-end}\n:::"
    )
    assert text == "**Exercise: Main.**\n\nWhy?\n\n**Solution.**\n\nSo."


def test_every_page_is_plain_markdown_in_the_end():
    """No directive and no role is left, except numbers that only an execution knows."""
    pages = site.pages(ROOT)
    names = plain.names_of_book(ROOT, pages)
    left = {}
    for page in pages:
        source = (ROOT / f"notebooks/{page}.md").read_text(encoding="utf-8")
        _, _, body = source.split("---\n", 2)
        prose = re.sub(r"^```\{code-cell\}.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE)
        text, captions = plain.plain(prose, names, {}, page)
        text = "\n".join([text, *captions.values()])
        kinds = r"^:{3,}.*|^`{3,}\{.*|\{[\w:-]+\}`[^`]+`|\$\$ \(.*|\]\((?:\w+-[\w-]+|\S+\.md)\)"
        found = set(re.findall(kinds, text, re.MULTILINE))
        found = {name for name in found if not name.startswith(("{glue:text}", "{evidence}"))}
        if found:
            left[page] = sorted(found)
    assert left == {}
