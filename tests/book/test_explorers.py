"""The explorers: their formulas are those of dprl, and everybody can use them, offline.

The formulas need a Chromium only, the rest ``make book`` as well; see ``conftest.py``.
"""

import dataclasses
import importlib.util
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from companion.build import site
from dprl import (
    LSW,
    Chain,
    GaussianSmoothing,
    classical_gaussian_sigma,
    gaussian_delta,
    lsw_smooth_bound,
)
from dprl.bounds import binomial_visits, gpope_privacy, lsw_utility, subsampling_limits
from dprl.bounds.subsampling_utility import section_4_5_avss_squared, utility_ratio
from dprl.membership.gaussian_game import GaussianGame
from dprl.privacy import laplace_delta
from dprl.private_evaluation import choice
from experiments.chapter_3 import FEATURES, chain_features

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / site.SITE
STATIC = ROOT / "book" / "_static"
EXTENSION = importlib.util.spec_from_file_location(
    "explorers_extension", ROOT / "book" / "_ext" / "explorers.py"
)
explorers = importlib.util.module_from_spec(EXTENSION)
EXTENSION.loader.exec_module(explorers)
CONSTANTS = explorers.evaluators(None)
MOST_BYTES = 150_000  # of all that explorers load
SETTINGS, PRECISION = 200, 1e-9

pytestmark = pytest.mark.site


# -- the formulas ---------------------------------------------------------------------------


def power(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def promise(rng, largest=5.0):
    return power(rng, 0.01, largest), power(rng, 1e-9, 0.5)


def exact_sigma(epsilon, delta):
    """analytic_gaussian_sigma to twelve digits; the search of dp-accounting stops at nine."""
    return 1 / subsampling_limits.least_noise_signal(epsilon, delta)


def draw_arguments(rng):
    a, b = power(rng, 0.3, 200), power(rng, 0.3, 200)
    return [rng.uniform(-10, 10), a, b, rng.random()]


def special_functions(x, a, b, u):
    return [
        *(special.erf(x), special.erfcx(abs(x)), special.ndtr(x), special.gammaln(a)),
        *(special.gammainc(a, 2 * a * u), special.betainc(a, b, u), stats.chi2(a).ppf(u)),
    ]


def draw_gaussian(rng):
    return [rng.uniform(0, 4), power(rng, 0.1, 50), rng.uniform(0, 5)]


def draw_counts(rng):
    counts = rng.integers(0, 10 ** int(rng.integers(1, 6)), size=int(rng.integers(1, 30)))
    return [(counts * rng.choice([1.0, 0.975])).tolist(), rng.random(counts.size).tolist(),
            power(rng, 1e-4, 1)]  # fmt: skip


def smooth_bound(counts, weights, beta):
    return [float(found) for found in lsw_smooth_bound(counts, weights, beta)]


def draw_noise(rng):
    epsilon, delta = promise(rng)
    return [{
        "states": 2 * int(rng.integers(1, 30)), "features": str(rng.choice(FEATURES)),
        "start": str(rng.choice(["first", "uniform"])), "m": round(power(rng, 10, 1e7)),
        "epsilon": epsilon, "delta": delta, "f_max": float(rng.choice([1, 100])),
    }]  # fmt: skip


def noise(setting):
    states, m = setting["states"], setting["m"]
    lsw = LSW(chain_features(setting["features"], states), np.ones(states), f_max=setting["f_max"])
    counts = m * Chain(states, start=setting["start"]).visit_probabilities()
    found = lsw.noise(counts, epsilon=setting["epsilon"], delta=setting["delta"])
    return [found.alpha, found.beta, float(found.psi), float(found.distance), float(found.sigma)]


def draw_risk(rng):
    return [round(power(rng, 1, 1e6)), int(rng.integers(1, 100)), *promise(rng)]


def risk(m, dimension, epsilon, delta):
    """Tabular, and pairs of twice as many states, which have the same constant."""
    answers = []
    for features in ("tabular", "aggregated"):
        states = dimension if features == "tabular" else 2 * dimension
        weights = np.full(states, 1 / states)
        constant = lsw_utility.theorem_3_17_constant(
            chain_features(features, states), weights, f_max=1, epsilon=epsilon, delta=delta
        )
        setting = {
            "constant": constant,
            "beta": GaussianSmoothing(epsilon, delta, dimension).beta,
        }
        sure = np.ones(states)
        answers += [
            constant,
            float(lsw_utility.excess_risk_equal_counts(m, weights, **setting)),
            float(lsw_utility.theorem_3_17_printed(m, sure, weights, **setting)),
            float(lsw_utility.theorem_3_17_corrected(m, sure, weights, **setting)),
            float(binomial_visits.quadratic_regime_onset(setting["beta"])),
        ]
    return answers


RISK = """(m, d, epsilon, delta) => {
  const constant = dprl.theorem_3_17_constant(d, { f_max: 1, epsilon, delta });
  const setting = { constant, beta: dprl.smoothing_constants(epsilon, delta, d)[1] };
  const found = [constant, ...["excess_risk_equal_counts", "theorem_3_17_printed",
    "theorem_3_17_corrected"].map((name) => dprl[name](m, setting)),
    dprl.quadratic_regime_onset(setting.beta)];
  return [...found, ...found];
}"""


def draw_sizes(rng):
    n = round(power(rng, 10, 1e6))
    return [n, round(power(rng, 1, 1e5)), round(power(rng, 1, n)), *promise(rng, 1.8)]


def printed_ratio(n, m, k, epsilon, delta):
    found = utility_ratio(n, m, k, epsilon, delta, calibration="printed", variance=0.25)
    return [float(part) for part in found]


def least_ratio(n, m, k, epsilon, delta):
    least = float(subsampling_limits.noise_lower_bound_sharper(n, m, k, epsilon, delta))
    mu = subsampling_limits.least_noise_signal(epsilon, delta)
    sampling = float(section_4_5_avss_squared(n, k, 0.25)) / m * (n * mu) ** 2
    return [least + sampling, least, sampling]


def draw_game(rng):
    sizes = {"members": int(rng.integers(2, 5000)), "dimensions": int(rng.integers(1, 200))}
    return [{**sizes, "spread": rng.uniform(0, 3), "noise": rng.uniform(0, 5)}, power(rng, 1e-4, 1)]


def game(sizes, fpr):
    played = GaussianGame(**sizes)
    return [
        each
        for other in ("held-out", "other")
        for each in (played.auc("member", other), float(played.tpr(fpr, "member", other)))
    ]


def half_law(v, scale):
    """As on the page on floating-point noise: every operation in NumPy's half precision."""
    half = np.float16
    u = (np.arange(1, 2**11) / 2**11).astype(half)
    low = u < half(0.5)
    a = np.where(low, u + u, half(2) - u - u).astype(np.float64)
    z = (scale * np.log(a).astype(half).astype(np.float64)).astype(half)
    return Counter(np.where(low, half(v) + z, half(v) - z).tolist())


def comb(scale, epsilon):
    p, q = half_law(0, scale), half_law(1, scale)
    answers = [laplace_delta(1, scale, epsilon)]
    for a, b in ((p, q), (q, p)):
        answers += [
            sum(n for y, n in a.items() if y not in b) / 2047,
            sum(max(0, n - np.exp(epsilon) * b[y]) for y, n in a.items()) / 2047,
        ]
    return answers


COMB = """(scale, epsilon) => {
  const [p, q] = [0, 1].map((v) => dprl.rounded_law(v, scale, 11));
  const both = [[p, q], [q, p]].flatMap(([a, b]) =>
    [dprl.impossible_share(a, b, 11), dprl.law_delta(a, b, epsilon, 11)]);
  return [dprl.laplace_delta(1, scale, epsilon), ...both];
}"""


def draw_choice(rng):
    return [round(power(rng, 10, 1e6)), *promise(rng)]


def draw_states(rng):
    p = rng.uniform(0.02, 1, size=int(rng.integers(1, 50)))
    known = {"p": p.tolist(), "tau": rng.uniform(0, 0.5, size=p.size).tolist()}
    return [{**known, "width": rng.uniform(0.1, 10), "visits_known": bool(rng.integers(2))},
            *draw_choice(rng)]  # fmt: skip


def draw_features(rng):
    return [{
        "dimension": int(rng.integers(1, 100)), "residual": rng.uniform(0.01, 2),
        "discount": rng.uniform(0, 0.99), "width": rng.uniform(0.1, 10),
    }, *draw_choice(rng)]  # fmt: skip


def draw_model(rng):
    return [int(rng.integers(10)), *draw_choice(rng)]


def chosen(problem, n, epsilon, delta):
    found = choice.choose_evaluator(problem, n, epsilon=epsilon, delta=delta)
    numbers = [v for f in choice.forecasts(problem) for v in dataclasses.astuple(f)]
    best = found.best and found.best.mechanism
    return [best, found.error, found.n_over_z, found.needed, *numbers]


def choose_states(known, *rest):
    given = {"width": known["width"], "visits_known": known["visits_known"]}
    return chosen(choice.States(known["p"], known["tau"], **given), *rest)


def choose_features(known, *rest):
    return chosen(choice.Features(**known), *rest)


def choose_model(number, *rest):
    model = CONSTANTS["models"][number]
    return chosen(choice.Model(Chain(model["states"], start=model["start"])), *rest)


CHOOSE = """(a, n, epsilon, delta) => {
  const known = %s, z = dprl.analytic_gaussian_sigma(1, epsilon, delta);
  const { best, error, n_over_z, needed } = dprl.choose_evaluator(known, n, z);
  return [best && best.mechanism, error, n_over_z, needed,
    ...known.flatMap((f) => [f.mechanism, f.noise, f.sampling, f.least])];
}"""

#: In JavaScript, the setting drawn, in Python.
FORMULAS = {
    "special functions": (
        "(x, a, b, u) => [dprl.erf(x), dprl.erfcx(Math.abs(x)), dprl.ndtr(x), dprl.gammaln(a),"
        " dprl.gammainc(a, 2 * a * u), dprl.betainc(a, b, u), dprl.chi2_ppf(u, a)]",
        draw_arguments, special_functions),
    "gaussian_delta": ("(...a) => [dprl.gaussian_delta(...a)]", draw_gaussian,
        lambda *a: [gaussian_delta(*a)]),
    "classical_gaussian_sigma": ("(...a) => [dprl.classical_gaussian_sigma(1, ...a)]",
        lambda rng: promise(rng, 0.99), lambda *a: [classical_gaussian_sigma(1, *a)]),
    "analytic_gaussian_sigma": ("(...a) => [dprl.analytic_gaussian_sigma(1, ...a)]", promise,
        lambda *a: [exact_sigma(*a)]),
    "lsw_smooth_bound": ("(...a) => dprl.lsw_smooth_bound(...a)", draw_counts, smooth_bound),
    "lsw_noise": ("(a) => Object.values(dprl.lsw_noise(a))", draw_noise, noise),
    "theorem_3_17": (RISK, draw_risk, risk),
    "utility_ratio_printed": (
        "(...a) => Object.values(dprl.utility_ratio_printed(...a, 0.25))", draw_sizes,
        printed_ratio),
    "utility_ratio_least": (
        "(n, m, k, e, d) =>"
        " Object.values(dprl.utility_ratio_least(n, m, k, dprl.plain_mechanism(e, d), 0.25))",
        draw_sizes, least_ratio),
    "gaussian_game": (
        "(a, fpr) => ['held-out', 'other'].flatMap((kind) =>"
        " [dprl.game_auc(a, 'member', kind), dprl.game_tpr(a, fpr, 'member', kind)])",
        draw_game, game),
    "theorem_1_sigma": ("(...a) => [dprl.theorem_1_sigma(...a)]",
        lambda rng: [*promise(rng), round(power(rng, 1, 1e6)), round(power(rng, 1, 1e7))],
        lambda *a: [gpope_privacy.theorem_1_sigma(*a)]),
    "comb": (COMB, lambda rng: [rng.uniform(1, 100), rng.uniform(0, 6)], comb),
    "forecasts_states": (CHOOSE % "dprl.forecasts_states(a, constants.free_shares)", draw_states,
        choose_states),
    "forecasts_features": (CHOOSE % "dprl.forecasts_features(a, constants.lstd_shares)",
        draw_features, choose_features),
    "models": (CHOOSE % "constants.models[a].forecasts", draw_model, choose_model),
}  # fmt: skip


@pytest.fixture(scope="module")
def formulas(browser):
    """A tab that has the formulas and nothing else."""
    tab = browser.new_page()
    tab.add_script_tag(path=STATIC / "explorers" / "formulas.js")
    yield tab
    tab.close()


def compare(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            if isinstance(b, str) or b is None:
                assert a == b
            else:
                assert a == pytest.approx(b, rel=PRECISION, abs=1e-280, nan_ok=True)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_that_of_the_package(formulas, name, monkeypatch):
    monkeypatch.setattr(choice, "analytic_gaussian_sigma", lambda _, *rest: exact_sigma(*rest))
    code, draw, reference = FORMULAS[name]
    rng = np.random.default_rng(20261123)
    settings = [list(draw(rng)) for _ in range(SETTINGS)]
    code = f"([all, constants]) => all.map((a) => ({code})(...a))"
    found = formulas.evaluate(code, [settings, CONSTANTS])
    compare(found, [reference(*setting) for setting in settings])


# -- the explorers on their pages -----------------------------------------------------------------

PLACED = re.compile(r'data-explorer="([\w-]+)"')
SCRIPT = re.compile(r'<script[^>]* src="([^"?]*)')


def placed():
    """Each page's explorers, by its name in the site."""
    pages = [f"{entry}.html" for entry in site.toc_entries(ROOT)]
    found = {page: PLACED.findall((SITE / page).read_text(encoding="utf-8")) for page in pages}
    return {page: names for page, names in found.items() if names}


def test_every_explorer_has_a_page_and_other_pages_load_nothing():
    names = [name for names in placed().values() for name in names]
    assert sorted(names) == sorted(explorers.EXPLORERS)
    for entry in site.toc_entries(ROOT):
        text = (SITE / f"{entry}.html").read_text(encoding="utf-8")
        loaded = [name.rpartition("/")[2] for name in SCRIPT.findall(text)]
        times = int(bool(PLACED.search(text)))
        for script in explorers.SCRIPTS:
            assert loaded.count(script.rpartition("/")[2]) == times, entry


def test_all_that_explorers_load_is_small():
    names = {*explorers.SCRIPTS, *explorers.STYLES}
    assert {path.name for path in (STATIC / "explorers").iterdir()} <= {Path(n).name for n in names}
    assert sum((STATIC / name).stat().st_size for name in names) < MOST_BYTES


def test_explorers_work_from_a_server(visitor):
    check_pages(visitor)


def test_explorers_work_from_files(visitor_of_files):
    check_pages(visitor_of_files)


def check_pages(visitor):
    for page, names in placed().items():
        visitor.open(page)
        boxes = visitor.tab.locator("[data-explorer]")
        assert boxes.count() == len(names)
        for box in boxes.all():
            assert box.get_attribute("data-ready") == "true"
            check_controls(visitor.tab, box)
        assert visitor.trouble == [], page
        width = visitor.tab.evaluate("() => document.documentElement.scrollWidth")
        assert width <= visitor.width, page
        if visitor.kind == "phone":  # the whole pages are read wide, before anything is moved
            assert visitor.violations(include="div.explorer") == []
            visitor.darken()
            assert visitor.violations(["color-contrast"], include="div.explorer") == []


def check_controls(tab, box):
    """Each control that is shown is reached by the tabulator key and changes what is said."""
    fields = box.locator("input:visible, select:visible, button:visible")
    fields.first.focus()
    for number in range(fields.count()):
        field = fields.nth(number)
        assert field.evaluate("e => e === document.activeElement"), number
        if field.get_attribute("type") == "range":
            before = box.inner_text(), field.get_attribute("aria-valuetext")
            key = "ArrowLeft" if field.evaluate("e => e.value === e.max") else "ArrowRight"
            tab.keyboard.press(key)
            assert (box.inner_text(), field.get_attribute("aria-valuetext")) != before
        tab.keyboard.press("Tab")
    spoken = box.get_by_role("status")
    said = box.locator(".explorer-says")
    tab.wait_for_function(
        "([a, b]) => a.textContent && a.textContent.replace('^', '') === b.textContent",
        arg=[spoken.element_handle(), said.element_handle()],
    )
    drawn = box.locator("[role=img]")
    assert all(drawn.nth(i).get_attribute("aria-label") for i in range(drawn.count()))
    assert "undefined" not in said.inner_text()
    assert "NaN" not in said.inner_text()


def test_reset_brings_back_the_first_setting(visitor):
    page = next(iter(placed()))
    visitor.open(page)
    box = visitor.tab.locator("[data-explorer]").first
    said = box.locator(".explorer-says")
    before = said.inner_text()
    box.locator("input").first.press("End")
    assert said.inner_text() != before
    box.get_by_role("button", name="Reset").click()
    assert said.inner_text() == before


def test_without_javascript_the_figure_stays_and_the_page_says_so(tab_without_javascript, address):
    tab = tab_without_javascript
    for page, names in placed().items():
        tab.goto(f"{address}/{page}")
        assert tab.locator("[data-explorer] noscript p").count() == len(names)
        assert tab.locator("article figure img").count() > 0
