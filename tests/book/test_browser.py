"""The built site in a browser: offline, wide and narrow, light and dark, read by axe.

Needs ``make book`` and a Chromium: ``chromium`` or ``google-chrome`` on the path, or its path in
``DPRL_CHROMIUM``. Without one the tests are skipped, unless ``DPRL_REQUIRE_BROWSER=1``.
"""

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from companion.build import site, slides
from companion.exercise import RIGHT, Answer

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / site.SITE
PAGES = [f"{entry}.html" for entry in site.toc_entries(ROOT)]
WIDTHS = {"desktop": 1280, "phone": 390}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# In pixels at 1280 of width: how tall a page may be, where its first figure must have begun, and
# what a reader of the start page sees without scrolling far.
MOST_HEIGHT, FIRST_FIGURE, ONE_SCREEN = 14_000, 2_000, 1_000
PLACES = (
    "query => [...document.querySelectorAll(query)].filter(e => e.offsetParent)"
    ".map(e => e.getBoundingClientRect()).map(e => [e.top + scrollY, e.bottom + scrollY])"
)
# Of the slide that is shown: what stands beyond its edges, images that are small or not there.
OVERFLOWS = """() => {
  const slide = deck.getCurrentSlide(), edge = slide.getBoundingClientRect();
  const scale = edge.height / 720;
  const beyond = [...slide.querySelectorAll(":scope > :not(aside), :scope > div *")]
    .filter((e) => !e.closest("mjx-assistive-mml"))
    .map((e) => [e, e.getBoundingClientRect()])
    .filter(([, place]) => place.bottom > edge.bottom + 1 || place.right > edge.right + 1);
  const small = [...slide.querySelectorAll("img")]
    .filter((e) => !e.naturalWidth || e.getBoundingClientRect().height < 300 * scale);
  const cut = [...slide.querySelectorAll(":scope > div")]
    .filter((e) => e.scrollHeight > e.clientHeight + 1);
  return [...beyond.map(([e]) => e), ...small, ...cut].map((e) => e.outerHTML.slice(0, 80));
}"""
# What the theme and Sphinx make on every page, and no page of the book can change: rule, and what
# the element's HTML or place must contain.
THEME_MADE = {
    "label-content-name-mismatch": ("search-button", "prev-next", "left-prev", "right-next"),
    "aria-required-children": ("citation-list",),
    "aria-deprecated-role": ("doc-biblioentry",),
    "aria-allowed-role": ("doc-biblioentry",),
    "region": ("sidebar-primary-item",),
}

HIGHLIGHTED = re.compile(r'<div class="highlight"><pre>(.*?)</pre>', re.DOTALL)
TOKEN = re.compile(r'<span class="([a-z0-9 ]+)"')

pytestmark = pytest.mark.site


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing: the test's own messages matter."""


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Pass over a tab that went to the next page before this one's files had arrived."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture(scope="module")
def address():
    assert SITE.is_dir(), "run make book first"
    handler = functools.partial(QuietHandler, directory=str(SITE))
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("DPRL_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        missing = f"no browser: none of {', '.join(names)} is on the path, DPRL_CHROMIUM is not set"
        if os.environ.get("DPRL_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=WIDTHS)
def shared_visitor(request, browser, address):
    """A tab of one width, shared by tests: a new one for each would take the longest of all."""
    context = browser.new_context(viewport={"width": WIDTHS[request.param], "height": 900})
    yield Visitor(request.param, context, address)
    context.close()


@pytest.fixture
def visitor(shared_visitor):
    """A tab that may talk to the local server only, and what went wrong in it.

    It forgets what the site stored in it: the next test is a reader's first visit.
    """
    yield shared_visitor
    shared_visitor.forget()


class Visitor:
    def __init__(self, kind, context, address):
        self.kind, self.address, self.trouble = kind, address, []
        context.set_default_timeout(600_000)  # when to give up, in ms; a slow machine is no fault
        context.route("**/*", self._only_local)
        self.tab = context.new_page()
        self.tab.on("console", self._note_console)
        self.tab.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.tab.on("response", self._note_response)

    def _only_local(self, route):
        if route.request.url.startswith(self.address):
            route.continue_()
        else:
            self.trouble.append(f"asked for {route.request.url}")
            route.abort()

    def _note_console(self, message):
        if message.type == "error":
            self.trouble.append(f"console: {message.text}")

    def _note_response(self, response):
        if response.status >= 400:
            self.trouble.append(f"{response.status}: {response.url}")

    def open(self, name):
        """Load a page and wait until its formulas are set."""
        self.trouble.clear()
        self.tab.emulate_media(color_scheme="light")
        self.tab.goto(f"{self.address}/{name}", wait_until="load")
        if self.tab.locator("script[src*=mathjax]").count():
            self.tab.wait_for_function("() => window.MathJax?.startup?.promise")
            self.tab.evaluate("() => window.MathJax.startup.promise")
        self.tab.evaluate("() => document.fonts.ready")
        for _ in range(2):  # what watches for sizes speaks with the next frame
            self.tab.evaluate("() => new Promise(requestAnimationFrame)")

    def forget(self):
        """Drop what pages have stored: search terms to mark, the colour scheme."""
        if self.tab.url.startswith(self.address):
            self.tab.evaluate("() => { localStorage.clear(); sessionStorage.clear() }")

    def darken(self):
        """Switch to dark mode, as the system would, without the fading of colours."""
        self.tab.add_style_tag(content="*, ::before, ::after { transition: none !important }")
        self.tab.emulate_media(color_scheme="dark")
        self.tab.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")

    def violations(self, rules=None):
        """What axe finds, without what the theme makes."""
        # Without preload: axe would ask for imported style sheets, and not where they are.
        options = {"resultTypes": ["violations"], "preload": False}
        if rules:
            options["runOnly"] = {"type": "rule", "values": rules}
        # The tokens of code, and MathJax's elements, are thousands: axe would need most of its
        # time for them. Code is read as plain text here; a test of its own sees every colour.
        self.tab.evaluate(
            "() => document.querySelectorAll('.highlight pre:not(.tokens)')"
            ".forEach(code => { code.textContent = code.textContent })"
        )
        context = {"exclude": [["mjx-container"]]}
        found = Axe().run(self.tab, context=context, options=options).response["violations"]
        return [
            f"{violation['id']}: {node['target']} {node['html'][:160]}"
            for violation in found
            for node in violation["nodes"]
            if not _made_by_the_theme(violation["id"], f"{node['target']} {node['html']}")
        ]


def _made_by_the_theme(rule, element):
    return any(part in element for part in THEME_MADE.get(rule, ()))


@pytest.mark.parametrize("name", PAGES)
def test_page(visitor, name):
    visitor.open(name)
    tab = visitor.tab
    formulas = tab.locator(".math").count()
    assert tab.locator("mjx-merror").count() == 0
    assert tab.locator("mjx-container").count() >= formulas
    assert (
        tab.locator("article img").evaluate_all(
            "images => images.filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        == []
    )
    width = tab.evaluate("() => document.documentElement.scrollWidth")
    assert width <= WIDTHS[visitor.kind], f"{width} px wide"
    # axe takes most of the time; what a phone shows is the same, in another order.
    if visitor.kind == "desktop":
        if not name.startswith("book/api/"):  # one looks things up there
            assert tab.evaluate("() => document.documentElement.scrollHeight") <= MOST_HEIGHT
            figures = tab.evaluate(PLACES, "article figure img")
            assert not figures or figures[0][0] <= FIRST_FIGURE
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
