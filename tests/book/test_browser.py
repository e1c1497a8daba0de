"""The built site in a browser: offline, wide and narrow, light and dark, read by axe.

Needs ``make book`` and a Chromium, see ``conftest.py``.
"""

import re
from pathlib import Path

import pytest

from companion.build import site, slides
from companion.exercise import RIGHT, Answer

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / site.SITE
PAGES = [f"{entry}.html" for entry in site.toc_entries(ROOT)]
# In pixels at 1280 of width: how tall a page may be, where its first figure must have begun, and
# what a reader of the start page sees without scrolling far.
MOST_HEIGHT, FIRST_FIGURE, ONE_SCREEN = 13_000, 2_000, 1_000
PLACES = (
    "query => [...document.querySelectorAll(query)].filter(e => e.offsetParent)"
    ".map(e => e.getBoundingClientRect()).map(e => [e.top + scrollY, e.bottom + scrollY])"
)
# Of the slide that is shown: what stands beyond its edges, images that are small or not there.
OVERFLOWS = """() => {
  const slide = deck.getCurrentSlide(), edge = slide.getBoundingClientRect();
  const scale = edge.height / 720;
  const beyond = [...slide.querySelectorAll(":scope > :not(aside), :scope > div *")]
    .filter((e) => e.matches("mjx-container") || !e.closest("mjx-container"))
    .map((e) => [e, e.getBoundingClientRect()])
    .filter(([, place]) => place.bottom > edge.bottom + 1 || place.right > edge.right + 1);
  const small = [...slide.querySelectorAll("img")]
    .filter((e) => !e.naturalWidth || e.getBoundingClientRect().height < 300 * scale);
  const cut = [...slide.querySelectorAll(":scope > div")]
    .filter((e) => e.scrollHeight > e.clientHeight + 1);
  return [...beyond.map(([e]) => e), ...small, ...cut].map((e) => e.outerHTML.slice(0, 80));
}"""
HIGHLIGHTED = re.compile(r'<div class="highlight"><pre>(.*?)</pre>', re.DOTALL)
TOKEN = re.compile(r'<span class="([a-z0-9 ]+)"')

pytestmark = pytest.mark.site


# One tab, made narrow in between: setting the formulas again would take as long as axe does.
@pytest.mark.parametrize("shared_visitor", ["desktop"], indirect=True)
@pytest.mark.parametrize("name", PAGES)
def test_page(visitor, name):
    visitor.open(name)
    tab = visitor.tab
    formulas = tab.locator(".math").count()
    assert tab.locator("mjx-merror").count() == 0
    assert tab.locator("mjx-container").count() >= formulas
    for kind in ("phone", "desktop"):
        width = visitor.resize(kind)
        assert (
            tab.locator("article img").evaluate_all(
                "images => images.filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
            )
            == []
        )
        scrolled = tab.evaluate("() => document.documentElement.scrollWidth")
        assert scrolled <= width, f"{scrolled} px wide"
    if not name.startswith("book/api/"):  # one looks things up there
        assert tab.evaluate("() => document.documentElement.scrollHeight") <= MOST_HEIGHT
        figures = tab.evaluate(PLACES, "article figure img")
        assert not figures or figures[0][0] <= FIRST_FIGURE
    # axe takes most of the time; what a phone shows is the same, in another order.
    assert visitor.violations() == []
    visitor.darken()
    assert visitor.violations(["color-contrast"]) == []
    assert visitor.trouble == []


@pytest.mark.parametrize("name", [deck.name for deck in slides.decks(ROOT)])
def test_slides(visitor, name):
    """Every slide shows all that it has, and no formula fails."""
    visitor.open(f"slides/{name}.html")
    tab = visitor.tab
    tab.wait_for_function("() => window.deck?.isReady()")
    assert tab.locator("mjx-merror").count() == 0
    assert "$" not in tab.locator(".slides").inner_text()
    count = tab.evaluate("() => deck.getTotalSlides()")
    assert 15 <= count <= 25
    for number in range(count):
        tab.evaluate("number => deck.slide(number)", number)
        assert tab.evaluate(OVERFLOWS) == [], f"slide {number + 1}"
    if visitor.kind == "desktop":
        assert visitor.violations(["color-contrast", "image-alt", "link-name"]) == []
    assert visitor.trouble == []


def test_start_page_is_one_screen(visitor):
    visitor.open(PAGES[0])
    if visitor.kind == "desktop":
        doors = visitor.tab.evaluate(PLACES, ".sd-card")
        assert len(doors) == 3
        assert max(bottom for _, bottom in doors) <= ONE_SCREEN


def test_search_works_offline(visitor):
    visitor.open("search.html?q=privacy")
    visitor.tab.wait_for_selector("#search-results li a")
    assert visitor.trouble == []


def test_what_a_search_found_is_marked_and_readable(visitor):
    """Sphinx hands the terms to the next page, which marks them: in links and headings, too."""
    visitor.open("search.html?q=privacy")
    visitor.tab.wait_for_selector("#search-results li a")
    visitor.open(PAGES[0])
    assert visitor.tab.locator("a span.highlighted").count() > 0
    assert visitor.violations(["color-contrast"]) == []
    visitor.darken()
    assert visitor.violations(["color-contrast"]) == []


def test_the_scorecard_shows_what_is_asked_for_and_the_address_keeps_it(visitor):
    visitor.open("book/nb/scorecard.html#false-as-printed+thesis")
    rows = visitor.tab.locator(".scorecard-chapter tbody > tr")
    said = visitor.tab.get_by_role("status")
    shown = rows.locator("visible=true").all_inner_texts()
    assert 0 < len(shown) < rows.count()
    assert all("false as printed" in row and "thesis:" in row for row in shown)
    assert said.inner_text() == f"{len(shown)} of {rows.count()} claims"
    visitor.tab.get_by_label("severity").select_option("constant")
    assert visitor.tab.url.endswith("#false-as-printed+constant+thesis")
    assert 0 < rows.locator("visible=true").count() < len(shown)
    visitor.tab.get_by_label("words").fill("no claim says this")
    assert said.inner_text() == f"0 of {rows.count()} claims"
    assert visitor.trouble == []


def test_the_scorecard_opens_without_javascript(tab_without_javascript, address):
    tab = tab_without_javascript
    tab.goto(f"{address}/book/nb/scorecard.html")
    for chapter in tab.locator("details.scorecard-chapter").all():
        assert not chapter.locator("table").is_visible()
        chapter.locator("summary").first.click()
        tiles = chapter.locator(".tile").count()
        assert chapter.locator("tbody > tr").locator("visible=true").count() == tiles > 0


def test_a_wide_formula_scrolls_in_its_own_box_and_says_so(visitor):
    """Narrow every page with formulas until one is wider than its column."""
    for name in PAGES:
        visitor.open(name)
        visitor.tab.add_style_tag(content="article { width: 150px }")
        if not visitor.tab.evaluate(
            """() => [...document.querySelectorAll("mjx-container[display=true]")]
                .some(box => box.scrollWidth - box.clientWidth > 2)"""
        ):
            continue  # no displayed formula on this page, or none that is wide
        wide = visitor.tab.locator("mjx-container[display=true].more-right")
        wide.first.wait_for()
        assert "inset" in wide.first.evaluate("box => getComputedStyle(box).boxShadow")
        assert wide.first.get_attribute("tabindex") == "0"
        box = wide.first.element_handle()
        box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
        visitor.tab.wait_for_function("box => !box.classList.contains('more-right')", arg=box)
        return
    pytest.fail("no page has a wide displayed formula")


def test_every_colour_of_code_is_readable(visitor):
    tokens = set()
    for name in PAGES:
        for code in HIGHLIGHTED.findall((SITE / name).read_text(encoding="utf-8")):
            tokens.update(TOKEN.findall(code))
    assert {"k", "mi"} <= tokens, "keywords and numbers must be there"
    visitor.open(PAGES[0])
    lines = "".join(f'<span class="{token}">{token}</span>\n' for token in sorted(tokens))
    visitor.tab.evaluate(
        "html => document.querySelector('article').insertAdjacentHTML('beforeend', html)",
        f'<div class="highlight"><pre class="tokens" tabindex="0">{lines}</pre></div>',
    )
    assert visitor.tab.locator("pre.tokens span").count() == len(tokens)
    assert visitor.violations(["color-contrast"]) == []
    visitor.darken()
    assert visitor.violations(["color-contrast"]) == []


VERDICTS = ["holds", "conditions", "false", "reproduced", "deviations", "not", "unchecked"]


def test_verdicts_are_readable_and_never_said_by_colour_alone(visitor):
    visitor.open(PAGES[0])
    badges = "".join(f'<p><span class="verdict verdict-{v}">{v}</span></p>' for v in VERDICTS)
    visitor.tab.evaluate(
        "html => document.querySelector('article').insertAdjacentHTML('beforeend', html)", badges
    )
    signs = visitor.tab.locator(".verdict").evaluate_all(
        "spans => spans.map(s => getComputedStyle(s, '::before').content)"
    )
    assert all(sign not in ("none", "normal", '""') for sign in signs)
    assert visitor.violations(["color-contrast"]) == []
    visitor.darken()
    assert visitor.violations(["color-contrast"]) == []


def test_the_way_back_to_the_top_can_be_read(visitor):
    """Its button appears where a reader scrolls up; here it is there at once."""
    visitor.open(PAGES[0])
    button = visitor.tab.locator("#pst-back-to-top")
    button.evaluate("e => e.style.setProperty('display', 'block', 'important')")
    for darken in (False, True):
        if darken:
            visitor.darken()
        visitor.tab.mouse.move(0, 0)
        assert visitor.violations(["color-contrast"], "#pst-back-to-top") == []
        button.hover()
        assert visitor.violations(["color-contrast"], "#pst-back-to-top") == []


def test_an_answer_is_judged_on_the_site_as_in_a_notebook(visitor):
    name = next(n for n in PAGES if "exercise-answer" in (SITE / n).read_text(encoding="utf-8"))
    visitor.open(name)
    place = visitor.tab.locator(".exercise-answer").first
    field, verdict = place.get_by_role("textbox", name="Your answer"), place.get_by_role("status")
    right = place.evaluate("e => e.dataset.value")
    data = {k: float(place.evaluate(f"e => e.dataset.{k}")) for k in ("value", "rtol", "atol")}
    answer = Answer(label="ex-1-one", what="", **data)

    def judged(text):
        field.fill(text)
        assert verdict.inner_text() == ""
        field.press("Enter")
        return verdict.inner_text()

    assert judged(right).endswith(RIGHT)
    for factor in (-1, 2, 0.5, 100, 0.01, 7.7, 1.001 + answer.rtol):
        assert judged(repr(answer.value * factor)).endswith(answer.judge(answer.value * factor))
    # by the keyboard alone: a Tab from the field is the button
    field.fill(right)
    field.press("Tab")
    assert visitor.tab.evaluate("document.activeElement.textContent") == "Check"
    visitor.tab.keyboard.press("Space")
    assert verdict.inner_text().endswith(RIGHT)
    assert visitor.violations() == []
    visitor.darken()
    assert visitor.violations(["color-contrast"]) == []
    assert visitor.trouble == []


def test_numbers_may_be_written_in_many_ways(visitor):
    visitor.open(next(n for n in PAGES if "exercise-answer" in (SITE / n).read_text("utf-8")))
    place = visitor.tab.locator(".exercise-answer").first
    field, verdict = place.get_by_role("textbox"), place.get_by_role("status")
    for value, texts in {
        "0.25": ["1/4", "25 %", "2.5e-1", " .25", "0.250", "2.5*10^-1", "250/1,000"],
        "-1000": ["-1,000", "\N{MINUS SIGN}1000", "-1e3", "-1 000", "-10^3"],
    }.items():
        place.evaluate("(e, v) => { e.dataset.value = v; e.dataset.atol = 0 }", value)
        for text in texts:
            field.fill(text)
            field.press("Enter")
            assert verdict.inner_text().endswith(RIGHT), text
    for text in ("", "a half", "1/0", "1,00", "--1", "1/2/3"):
        field.fill(text)
        field.press("Enter")
        assert "This is no number" in verdict.inner_text(), text
