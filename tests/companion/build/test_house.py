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


def test_every_part_is_drawn_once_and_arrows_lead_down(graph):
    at = house.places(graph)
    assert set(at) == set(graph)
    assert len(set(at.values())) == len(at)
    assert all(at[part][1] < at[used][1] for part in graph for used in graph[part])
    drawn = ElementTree.fromstring(house.draw(graph))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert sorted(texts[: len(graph)]) == sorted(part.partition(".")[2] for part in graph)


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
