"""The map of the house: every part once, arrows only downwards, all of them from true imports."""

import re
from xml.etree import ElementTree

import pytest

from companion.build import house
from companion.dependencies import OWN_ROOT, sources_of


@pytest.fixture(scope="module")
def graph():
    return house.imports_of(sources_of(OWN_ROOT))


def test_the_graph_is_that_of_the_imports(graph):
    """Compared with the graph of another reader of imports."""
    grimp = pytest.importorskip("grimp")
    other = grimp.build_graph(*house.PACKAGES)
    expected = {part: set() for part in map(house.part_of, other.modules) if part}
    for module in other.modules:
        part = house.part_of(module)
        used = {house.part_of(m) for m in other.find_modules_directly_imported_by(module)}
        if part:
            expected[part] |= used - {part, None}
    assert graph == expected


@pytest.mark.parametrize(
    ("packages", "whole"),
    [(("experiments", "dprl"), ""), (("experiments", "companion"), "experiments")],
)
def test_every_part_is_drawn_once_and_arrows_lead_down(graph, packages, whole):
    seen = house.shown(graph, *packages, whole=whole)
    assert set(seen) - {whole} == {
        part for part in graph if part.partition(".")[0] in set(packages) - {whole}
    }
    at = house.places(seen)
    assert set(at) == set(seen)
    assert len(set(at.values())) == len(at)
    assert all(at[part][1] < at[used][1] for part in seen for used in seen[part])
    drawn = ElementTree.fromstring(house.draw(seen))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert sorted(texts[: len(seen)]) == sorted(part.rpartition(".")[2] for part in seen)
    *_, width, _ = map(float, drawn.attrib["viewBox"].split())
    assert width <= 800  # what the column of the page shows without scrolling


def test_what_the_maps_leave_out_is_known(graph):
    """No arrow leads from the science to the plumbing or back, and so none is missing."""
    for part, used in graph.items():
        packages = {part.partition(".")[0]} | {u.partition(".")[0] for u in used}
        assert not packages >= {"dprl", "companion"} or part.startswith("experiments.")


def test_no_arrow_is_lost_only_shortened(graph):
    short = house.direct(graph)

    def below(part):
        return short[part].union(*(below(used) for used in short[part]))

    for part, used in graph.items():
        assert short[part] <= used <= below(part)


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match=r"a circle of imports: (a -> b -> a|b -> a -> b)"):
        house.layers({"a": {"b"}, "b": {"a"}})


def test_the_page_says_what_each_part_is_and_how_long(graph):
    text = house.page(OWN_ROOT)
    for part in graph:
        assert re.search(rf"\* - `{re.escape(part.partition('.')[2])}`\n  - \S.+\n  - [\d,]+", text)
