"""A tab of a browser for the tests of the site: what it asks for, what goes wrong, what axe finds.

Needs a Chromium: ``chromium`` or ``google-chrome`` on the path, or its path in
``DPRL_CHROMIUM``. Without one the tests are skipped, unless ``DPRL_REQUIRE_BROWSER=1``.
"""

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from companion.build import site

SITE = Path(__file__).resolve().parents[2] / site.SITE
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 900}}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PLAIN = """() => {
  for (const code of document.querySelectorAll(".highlight pre:not(.tokens)"))
    code.textContent = code.textContent;
  const formulas = [...document.querySelectorAll("mjx-container")];
  const sizes = formulas.map((formula) => formula.getBoundingClientRect());
  formulas.forEach((formula, i) => {
    const display = formula.hasAttribute("display") ? "block" : "inline-block";
    Object.assign(formula.style, { display, overflow: "hidden" });
    Object.assign(formula.style, { width: `${sizes[i].width}px`, height: `${sizes[i].height}px` });
    for (const child of formula.children) child.replaceChildren();  // the child is watched
  });
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
    # Imported here and below: `make test` does without both.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=SCREENS)
def shared_visitor(request, browser, address):
    """A tab of one width, shared by tests: a new one for each would take the longest of all."""
    context = browser.new_context(viewport=SCREENS[request.param])
    yield Visitor(request.param, context, address)
    context.close()


@pytest.fixture
def visitor(shared_visitor):
    """A tab that may talk to the local server only, and what went wrong in it.

    It forgets what the site stored in it: the next test is a reader's first visit.
    """
    yield shared_visitor
    shared_visitor.forget()


@pytest.fixture
def tab_without_javascript(browser):
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.fixture
def visitor_of_files(browser):
    """A wide tab on the files themselves, without a server."""
    context = browser.new_context(viewport=SCREENS["desktop"])
    yield Visitor("desktop", context, SITE.as_uri())
    context.close()


class Visitor:
    def __init__(self, kind, context, address):
        self.kind, self.width = kind, SCREENS[kind]["width"]
        self.address, self.trouble = address, []
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
        self.tab.set_viewport_size(SCREENS[self.kind])  # a test that failed may have left another
        self.tab.goto(f"{self.address}/{name}", wait_until="load")
        if self.tab.locator("script[src*=mathjax]").count():
            self.tab.wait_for_function("() => window.MathJax?.startup?.promise")
            self.tab.evaluate("() => window.MathJax.startup.promise")
        self.tab.evaluate("() => document.fonts.ready")
        self._settle()

    def resize(self, kind):
        """Make the tab as wide as a kind of screen, wait for its pictures; return the width."""
        self.tab.set_viewport_size(SCREENS[kind])
        self._settle()
        self.tab.wait_for_function(
            "() => [...document.images].every(i => i.complete || i.loading === 'lazy')"
        )
        return SCREENS[kind]["width"]

    def _settle(self):
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

    def violations(self, rules=None, include=None):
        """What axe finds, in all or in one part, without what the theme makes."""
        from axe_playwright_python.sync_playwright import Axe

        # Without preload: axe would ask for imported style sheets, and not where they are.
        options = {"resultTypes": ["violations"], "preload": False}
        if rules:
            options["runOnly"] = {"type": "rule", "values": rules}
        # The tokens of code, and MathJax's elements, are thousands: axe would need most of its
        # time for them. Code is read as plain text here; a test of its own sees every colour. A
        # formula, which axe is not asked about, leaves its box.
        self.tab.evaluate(PLAIN)
        context = {"exclude": [["mjx-container"]]}
        if include:
            context["include"] = [[include]]
        found = Axe().run(self.tab, context=context, options=options).response["violations"]
        return [
            f"{violation['id']}: {node['target']} {node['html'][:160]}"
            for violation in found
            for node in violation["nodes"]
            if not _made_by_the_theme(violation["id"], f"{node['target']} {node['html']}")
        ]


def _made_by_the_theme(rule, element):
    return any(part in element for part in THEME_MADE.get(rule, ()))
