"""Every numbered statement of the texts has a claim, and every fault is in the errata."""

import ast
from pathlib import Path

import pytest

from companion import claims
from companion.build import site
from companion.page_code import code_of_page

ROOT = Path(__file__).resolve().parents[2]
LEDGER = claims.load(ROOT / "book" / "claims.yml", ROOT)
# The numbered statements of each text, in its own numbers. A chapter joins when its pages do.
STATEMENTS = {
    "chapter 2 of the thesis": [
        "thesis:2.1",
        "thesis:2.2",
        *(f"thesis:figure-2.{number}" for number in range(1, 4)),
    ],
    "chapter 3 of the thesis": [
        *(f"thesis:3.{number}" for number in range(1, 25)),
        "thesis:algorithm-1",
        *(f"thesis:eq-3.{number}" for number in (41, 51, 52)),
        # sentences that state something of their own
        *(
            f"thesis:section-{name}"
            for name in (
                "3.3.1-weights",
                "3.5-noise-decreases-lsw",
                "3.5-noise-decreases-lsl",
                "3.8-weights",
            )
        ),
        "thesis:algorithm-2",
        "thesis:figure-3.1",
    ],
    "chapter 4 of the thesis": [
        *(f"thesis:4.{number}" for number in range(1, 18)),
        "thesis:algorithm-3",
        *(f"thesis:figure-4.{number}" for number in range(1, 6)),
    ],
    "chapter 5 of the thesis": [
        *(f"thesis:figure-5.{number}" for number in range(1, 8)),
        *(f"thesis:table-5.{number}" for number in range(1, 3)),
        *(f"thesis:eq-5.{number}" for number in range(1, 3)),
    ],
    "the paper of 2016": [
        *(f"balle:lemma-{number}" for number in (1, 2, 4, 5, 7, 9, 14, 15)),
        *(f"balle:corollary-{number}" for number in (3, 8, 12, 13)),
        *(f"balle:theorem-{number}" for number in (6, 10, 11)),
        *(f"balle:algorithm-{number}" for number in (1, 2)),
    ],
    "the lecture": [
        *(f"lecture:11.{number}" for number in range(1, 14)),
        "lecture:algorithm-1",
    ],
    # It numbers its algorithm only: what is in a box of its own, or an equation.
    "the poster": [
        *(f"poster:algorithm-1-{part}" for part in ("penalty", "exponential")),
        *(
            f"poster:definition-{word}"
            for word in ("minimisers", "useful", "strongly-efficient", "adjacency", "privacy")
        ),
        "poster:figure-setting",
        "poster:sample-size",
        "poster:privacy",
        "poster:usefulness",
        "poster:efficiency",
    ],
    # Numbered equations that state something; others only carry a derivation.
    "private off-policy evaluation": [
        *(f"xie:eq-{number}" for number in ("2.1", "2.2", "2.3", "4.1", "6.2", "6.3", "6.4")),
        *(f"xie:{name}" for name in ("assumption-1", "lemma-2", "theorem-2", "theorem-3")),
        *(f"xie:eq-{number}" for number in ("6.1", "6.15")),
        *(f"xie:definition-{number}" for number in range(1, 7)),
        *(f"xie:{name}" for name in ("lemma-1", "lemma-3", "theorem-1", "theorem-4", "table-1")),
        *(f"xie:eq-{number}" for number in ("5.1", "b.13", "b.31", "b.32")),
        "xie:remark-1",
        *(f"xie:figure-{number}" for number in range(1, 7)),
        "xie:algorithm-1-privacy",
    ],
}
ERRATA = sorted((ROOT / "notebooks").rglob("errata.md"))


@pytest.mark.parametrize(
    "statement", [s for numbered in STATEMENTS.values() for s in numbered], ids=str
)
def test_numbered_statement_has_a_claim(statement):
    assert statement in LEDGER


@pytest.mark.parametrize(
    "claim", [c for c in LEDGER.values() if c.expected in claims.FAULTS], ids=lambda claim: claim.id
)
def test_fault_is_explained_in_the_errata(claim):
    text = "".join(path.read_text(encoding="utf-8") for path in ERRATA)
    assert f"<{claims.anchor(claim.id)}>`" in text


def test_the_ledger_is_in_the_order_of_reading():
    """The scorecard lists the claims of a text page by page, as the book does."""
    pages = site.pages(ROOT)
    for source in claims.SOURCES:
        order = [pages.index(claim.page) for claim in LEDGER.values() if claim.source == source]
        assert order == sorted(order)


def strings_of(path):
    """The texts in a page's code; a claim's id may reach its check through a function or a loop."""
    tree = ast.parse(code_of_page(path.read_text(encoding="utf-8")))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


NAMED = {
    path.relative_to(ROOT / "notebooks").with_suffix("").as_posix(): strings_of(path)
    for path in (ROOT / "notebooks").rglob("*.md")
}


@pytest.mark.parametrize("claim", LEDGER.values(), ids=lambda claim: claim.id)
def test_claim_is_checked_by_its_page_and_by_no_other(claim):
    """That the check is reached is seen when the page is executed."""
    assert {page for page, strings in NAMED.items() if claim.id in strings} == {claim.page}
