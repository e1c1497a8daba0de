"""Same figure, same bytes; bands that stay honest on logarithmic axes; numbers as text."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.colors import rgb_to_hsv, to_rgb
from scipy import optimize

from companion import card, figures, records
from companion._numbers import significant, tidy
from companion.figures import FigureError


@pytest.fixture(autouse=True)
def style(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("DPRL_STAGE", "DPRL_PAGE", "DPRL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mpl.rc_context():
        figures.use_style()
        yield
    plt.close("all")


def draw(scale="log"):
    fig, ax = figures.panels()
    for name in ("LSW", "DP-LSW"):
        x = np.array([10, 100, 1000])
        figures.band(ax, x, 5 / x, 1 / x, name, **figures.algorithm_style(name))
    ax.set(xscale=scale, yscale=scale, xlabel="batch size", ylabel="RMSE")
    ax.legend()
    return fig


# -- bytes ------------------------------------------------------------------------------

SCRIPT = """
import sys, hashlib
import matplotlib; matplotlib.use("agg")
import numpy as np
from companion import figures
figures.use_style()
fig, ax = figures.panels()
x = np.array([1.0, 10.0])
figures.band(ax, x, x, x / 2, "a", **figures.algorithm_style("LSW"))
ax.legend()
print(hashlib.sha256(figures.svg(fig).encode()).hexdigest())
"""


def test_two_drawings_and_two_processes_give_the_same_bytes():
    assert figures.svg(draw()) == figures.svg(draw())
    command = [sys.executable, "-c", SCRIPT]
    digests = {subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)}
    assert len(digests) == 1


def test_svg_is_well_formed_and_holds_no_date():
    text = figures.svg(draw())
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "<dc:date>" not in text
    assert "Matplotlib v" not in text


def test_a_readers_own_style_does_not_change_the_bytes():
    expected = figures.svg(draw())
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": "mine", "axes.grid": False}):
        figures.use_style()
        assert figures.svg(draw()) == expected


def test_text_stays_readable_on_a_phone():
    shown = 350  # CSS pixels left for a figure on a screen of 390
    points = min(mpl.rcParams["xtick.labelsize"], mpl.rcParams["legend.fontsize"])
    shrink = shown / (mpl.rcParams["figure.figsize"][0] * 96)
    assert points * 96 / 72 * shrink >= 10


# -- styles -----------------------------------------------------------------------------


def test_algorithms_of_one_figure_differ_without_colour():
    four = [figures.algorithm_style(n) for n in ("LSW", "LSL", "DP-LSW", "DP-LSL")]
    assert len({(s["marker"], str(s["linestyle"])) for s in four}) == 4
    assert len({s["color"] for s in four}) == 4


def test_no_two_algorithms_share_a_style():
    styles = [tuple(map(str, figures.algorithm_style(n).values())) for n in figures._ALGORITHMS]
    assert len(set(styles)) == len(styles)


def contrast_to_white(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 1.05 / (np.dot([0.2126, 0.7152, 0.0722], linear) + 0.05)


def test_line_colours_stand_out_from_white():
    for name in ("LSW", "LSL", "DP-LSW", "DP-LSL"):
        assert contrast_to_white(figures.algorithm_style(name)["color"]) >= 2.9


# -- bands ------------------------------------------------------------------------------


def vertices(ax):
    return ax.collections[0].get_paths()[0].vertices


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(-50, 50), st.floats(0, 10)),
        min_size=2,
        max_size=10,
        unique_by=lambda row: row[0],
    )
)
def test_band_is_mean_plus_and_minus_its_standard_error(rows):
    fig, ax = figures.panels()
    x, mean, se = np.array(rows).T
    figures.band(ax, x, mean, se, factor=2.0)
    line = ax.lines[0].get_xydata()
    assert np.array_equal(line[:, 0], np.sort(x))
    ys = vertices(ax)[:, 1]
    assert ys.min() == pytest.approx((mean - 2 * se).min())
    assert ys.max() == pytest.approx((mean + 2 * se).max())
    low, high = ax.get_ylim()
    assert low <= ys.min() + 1e-9
    assert high >= ys.max() - 1e-9
    plt.close(fig)


@pytest.mark.parametrize("before", [True, False])
def test_log_axes_stay_positive_and_are_not_stretched(before):
    fig, ax = figures.panels()
    if before:
        ax.set(xscale="log", yscale="log")
    figures.band(ax, [1, 10, 100], [1.0, 0.1, 0.01], [0.1, 0.2, 0.01], "x")
    ax.set(xscale="log", yscale="log")
    fig.canvas.draw()
    assert ax.get_ylim()[0] > 1e-4
    assert ax.get_xlim()[0] > 0
    drawn = ax.transData.transform(vertices(ax))
    assert np.isfinite(drawn).all()
    ElementTree.fromstring(figures.svg(fig))


def test_a_missing_mean_leaves_a_gap():
    _, ax = figures.panels()
    figures.band(ax, [1, 2, 3, 4, 5], [1, 1, np.nan, 1, 1], [0.1] * 5)
    assert len(ax.collections[0].get_paths()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1], [1]), "one length"),
        (([[1]], [[1]], [[1]]), "one length"),
        (([], [], []), "one length"),
        (([1], [1], [-0.1]), "must not be negative"),
        (([1], [np.inf], [0]), "infinite"),
        (([1], [1], [np.inf]), "infinite"),
        (([np.nan], [1], [0]), "x must be finite"),
    ],
)
def test_bad_bands_are_refused(arguments, message):
    _, ax = figures.panels()
    with pytest.raises(FigureError, match=message):
        figures.band(ax, *arguments)
    assert not ax.lines


@pytest.mark.parametrize("factor", [-1, math.nan, math.inf])
def test_a_bad_factor_is_refused(factor):
    _, ax = figures.panels()
    with pytest.raises(FigureError, match="factor"):
        figures.band(ax, [1], [1], [1], factor=factor)


def test_a_legend_below_covers_no_data_and_no_label():
    fig = draw()
    ax = fig.axes[0]
    figures.reference_line(ax, 0.2, "size of the values")
    figures.legend_below(ax)
    fig.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.y1 <= ax.get_window_extent().y0
    assert not legend.overlaps(ax.xaxis.label.get_window_extent())
    assert [t.get_text() for t in ax.get_legend().get_texts()][-1] == "size of the values"
    with pytest.raises(FigureError, match="at least one column"):
        figures.legend_below(ax, 0)


# -- names at the ends of curves --------------------------------------------------------


def drawn_names(fig, ax):
    """Boxes of the names, by name, and the points in pixels where their curves end."""
    fig.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    ends = {
        str(line.get_label()): line.get_transform().transform(line.get_xydata())[-1]
        for line in ax.lines
    }
    return boxes, ends


def five_curves(ends, scale="linear"):
    fig, ax = figures.panels()
    for number, end in enumerate(ends):
        ax.plot([1, 10, 100], [1, 2, end], label=f"curve {number}")
    ax.set(xscale=scale, yscale=scale, xlabel="records")
    figures.label_ends(ax)
    return fig, ax


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=5), st.sampled_from(["linear", "log"]))
@settings(max_examples=15, deadline=None)
def test_names_at_ends_keep_the_order_of_the_ends_and_do_not_overlap(heights, scale):
    fig, ax = five_curves(heights, scale)
    for width in (8.2, 5.2):
        fig.set_size_inches(width, 3.5)
        boxes, ends = drawn_names(fig, ax)
        order = sorted(boxes, key=lambda name: ends[name][1])
        for below, above in itertools.pairwise(order):
            assert boxes[below].y1 <= boxes[above].y0
        for name, box in boxes.items():
            assert ends[name][0] < box.x0 < ends[name][0] + 20
            assert box.x1 <= fig.bbox.x1
            assert ax.bbox.y0 <= box.y0 < box.y1 <= ax.bbox.y1
    plt.close(fig)


def test_a_name_with_room_stands_at_the_height_of_its_end():
    fig, ax = five_curves([10, 50, 90])
    boxes, ends = drawn_names(fig, ax)
    for name, box in boxes.items():
        assert (box.y0 + box.y1) / 2 == pytest.approx(ends[name][1], abs=3)


def test_names_stand_at_the_last_point_in_view_whatever_is_set_later():
    fig, ax = figures.panels()
    ax.plot([0, 1, 2], [0, 1, np.nan], label="gap")
    ax.plot([0, 1, 2], [3, 3, 300], label="leaves")
    ax.plot([0, 1, 2], [2, 2, 2], label="_unnamed")
    figures.reference_line(ax, 2.0, "promise")
    figures.label_ends(ax)
    ax.set(xlim=(0, 1.5), ylim=(0, 4))
    fig.canvas.draw()
    height = {
        text.get_text(): ax.transData.inverted().transform(text.get_window_extent())[:, 1].mean()
        for text in ax.texts
    }
    assert height == pytest.approx({"gap": 1, "leaves": 3, "promise": 2}, abs=0.1)


def test_no_line_without_a_name_runs_through_a_name():
    fig, ax = figures.panels()
    ax.plot([0, 1, 2], [1, 2, 2], label="curve")
    figures.label_ends(ax)
    ax.axhline(2)
    fig.canvas.draw()
    assert ax.texts[0].get_window_extent().x0 > ax.bbox.x1


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(1, 30)), min_size=1, max_size=5))
def test_spread_is_the_nearest_arrangement(boxes):
    wish, tall = np.array(boxes).T
    places = figures._spread(wish, tall, 0.0, 200.0)
    order = np.argsort(wish, kind="stable")
    half = tall[order] / 2
    # one box after the other, and the first and the last within
    rows = np.eye(len(wish) + 1, len(wish)) - np.eye(len(wish) + 1, len(wish), -1)
    room = np.r_[0.0, half] + np.r_[half, -200.0]
    within = optimize.LinearConstraint(rows, room, np.inf)
    assert (rows @ places[order] >= room - 1e-9).all()
    best = optimize.minimize(
        lambda p: np.sum((p - wish[order]) ** 2),
        places[order],
        method="SLSQP",
        constraints=[within],
    )
    assert np.sum((places - wish) ** 2) <= best.fun + 1e-4


@pytest.mark.parametrize("colour", figures.PALETTE)
def test_names_have_the_hue_of_their_curve_and_the_contrast_of_text(colour):
    colour = to_rgb(figures.PALETTE[colour])
    dark = figures._dark(colour)
    assert contrast_to_white(dark) >= 4.4
    assert rgb_to_hsv(dark)[0] == pytest.approx(rgb_to_hsv(colour)[0])
    if contrast_to_white(colour) >= 5:
        assert dark == pytest.approx(colour)


def test_curves_that_cannot_be_named_are_refused():
    _, ax = figures.panels()
    ax.plot([1, 2], [1, 2])
    with pytest.raises(FigureError, match="no line of these axes has a label"):
        figures.label_ends(ax)
    ax.plot([1, 2], [np.nan, np.nan], label="missing")
    with pytest.raises(FigureError, match="'missing' has no finite point"):
        figures.label_ends(ax)
    assert not ax.texts


# -- numbers ----------------------------------------------------------------------------


@given(st.floats(-1e308, 1e308))
def test_a_typeset_number_reads_back_to_its_stated_precision(value):
    assert float(read(significant(value))) == pytest.approx(value, rel=5e-4)


@given(st.integers(-(10**8), 10**8))
def test_integers_keep_every_digit(value):
    assert int(significant(value).replace("\u202f", "").replace("−", "-")) == value


@given(st.floats(-1e9, 1e9), st.sampled_from([".0f", ".3f", ",.1f", ".2e", ".1%"]))
def test_a_bound_is_rounded_to_its_safe_side_and_by_less_than_a_unit(value, fmt):
    down, up = (read(figures.typeset(value, fmt + arrow)) for arrow in "↓↑")
    exact = Decimal(value)
    assert down <= exact <= up
    nearest = read(figures.typeset(value, fmt))
    assert nearest in (down, up)
    assert (down == up) == (nearest == exact)


def read(text):
    """The number that a text shows."""
    share = text.endswith("%")
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", "\u202f%")
    text = re.sub(r"^(−?)10(?=[⁻⁰-⁹²³¹])", r"\g<1>1e", text.replace("×10", "e"))
    return Decimal(text.translate(digits)) / (100 if share else 1)


def test_what_has_no_end_is_not_rounded():
    assert figures.typeset(np.inf, ".1f↓") == figures.typeset(np.inf, ".1f")
    with pytest.raises(FigureError, match="does not fit the format"):
        figures.typeset(1.5, ".1q↓")


@given(st.text())
def test_what_is_not_a_number_stays_as_it_is(text):
    try:
        float(text.replace(",", "").removesuffix("%"))
    except ValueError:
        assert tidy(text) == text


@pytest.mark.parametrize(
    ("value", "fmt", "expected"),
    [
        (np.float64(0.1), None, "0.1"),
        (np.int64(20), None, "20"),
        (np.True_, None, "yes"),
        (np.array(1.5), ".2f", "1.50"),
        (-0.00001234, ".2e", "−1.23×10⁻⁵"),
        (1e6, ".0e", "10⁶"),
        (-1e-300, "g", "−10⁻³⁰⁰"),
        (3e5, ",d", "300\u202f000"),
        (0.1234, ".1%", "12.3%"),
        (math.inf, None, "∞"),
        (-math.inf, ".2f", "−∞"),
        (0.99999, None, "0.99999"),
        (1.0, None, "1"),
        ("20 runs", None, "20 runs"),
        ("0.5", None, "0.5"),
    ],
)
def test_numbers_read_as_print(value, fmt, expected):
    assert figures.typeset(value, fmt) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", math.nan), "x: the value is not a number"),
        (("x", np.ones(2)), "one number or text, got ndarray"),
        (("x", None), "one number or text"),
        (("x", 1j), "one number or text"),
        (("x", 1.5, "d"), "does not fit the format"),
        (("x", 1.5, "nonsense"), "does not fit the format"),
        (("x", "text", ".2f"), "a text takes no format"),
        (("a name", 1), "a glued name"),
        (("a:b", 1), "a glued name"),
        (("", 1), "a glued name"),
    ],
)
def test_bad_numbers_are_refused(arguments, message):
    with pytest.raises(FigureError, match=message):
        figures.number(*arguments)


@pytest.mark.parametrize(
    ("name", "figure", "message"),
    [
        ("a b", draw, "a glued name"),
        ("a", lambda: None, "expected a matplotlib Figure"),
        ("a", plt.figure, "holds no axes"),
    ],
)
def test_bad_figures_are_refused(name, figure, message):
    with pytest.raises(FigureError, match=message):
        figures.glue_figure(name, figure())


def test_unknown_algorithms_and_empty_grids_are_refused():
    with pytest.raises(FigureError, match="no style for 'lsw'; known: LSW"):
        figures.algorithm_style("lsw")
    with pytest.raises(FigureError, match="at least one panel"):
        figures.panels(0)


def test_without_jupyter_gluing_shows_nothing_and_closes_the_figure(capfd):
    fig = draw()
    figures.glue_figure("rmse", fig)
    figures.number("x", 1)
    assert not plt.fignum_exists(fig.number)
    assert tuple(capfd.readouterr()) == ("", "")


# -- in a notebook ----------------------------------------------------------------------


def cell_outputs(code, tmp_path, **environment):
    """Outputs of one cell as a notebook would hold them: data and metadata."""
    pytest.importorskip("IPython")
    script = f"""
import json
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance(history_length=0)
with capture_output() as out:
    shell.run_cell({code!r}).raise_error()
print(json.dumps([[o.data, o.metadata] for o in out.outputs]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        # src also where the package that is tested is not the installed one
        env={
            "PYTHONPATH": os.pathsep.join(sys.path),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            **environment,
        },
    )
    return json.loads(done.stdout.splitlines()[-1])


CELL = """
from companion import figures
figures.use_style()
fig, ax = figures.panels()
ax.plot([1, 2])
figures.glue_figure("line", fig)
figures.number("half", 0.5)
"""
_PREFIX = "application/papermill.record/"


def test_a_page_hands_over_svg_and_text_without_showing_them(tmp_path):
    *renderings, number = cell_outputs(
        CELL, tmp_path, DPRL_STAGE=str(tmp_path), DPRL_PAGE="3-x/page", DPRL_PROFILE="quick"
    )
    for (figure, metadata), name in zip(renderings, ("line-narrow", "line"), strict=True):
        assert set(figure) == {f"{_PREFIX}image/svg+xml", f"{_PREFIX}text/plain"}
        assert metadata == {"scrapbook": {"name": name, "mime_prefix": _PREFIX}}
    assert number == [
        {f"{_PREFIX}text/plain": "'0.5'"},
        {"scrapbook": {"name": "half", "mime_prefix": _PREFIX}},
    ]


def test_a_reader_sees_the_figure_below_its_cell(tmp_path):
    narrow, wide, _ = cell_outputs(CELL, tmp_path)
    assert "image/svg+xml" in wide[0]
    assert "image/svg+xml" not in narrow[0]


def test_panels_stand_side_by_side_on_a_screen_and_below_each_other_on_a_phone():
    fig, axes = figures.panels(2, sharey=True, height=2.0)
    axes[0].set(ylabel="height")
    figures._arrange(fig, 2, 8.0, 2.0)
    fig.canvas.draw()
    left, right = (ax.get_position() for ax in axes)
    assert left.y0 == pytest.approx(right.y0)
    assert left.x1 < right.x0
    assert not axes[1].yaxis.label.get_visible()
    figures._arrange(fig, 1, 5.0, 2.0)
    fig.canvas.draw()
    top, below = (ax.get_position() for ax in axes)
    assert below.y1 < top.y0
    assert tuple(fig.get_size_inches()) == (5.0, 4.0)
    assert [ax.get_ylabel() for ax in axes] == ["height"] * 2
    assert axes[1].yaxis.label.get_visible()


# -- the provenance card ----------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    import pandas as pd

    (tmp_path / "book").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("DPRL_STAGE", str(tmp_path / "stage"))
    monkeypatch.setenv("DPRL_PAGE", "3-x/page")
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]})
    records.save("noise-3", frame, seed=11, parameters={}, seconds=3.25)
    return tmp_path


def test_card_names_page_profile_seed_versions_and_tables(recorded):
    text = str(card.provenance_card("noise-3", "noise-3"))
    assert "page: notebooks/3-x/page.md" in text
    assert "profile: quick" in text
    assert "seed: 11" in text
    assert f"numpy {np.__version__}" in text
    assert text.count("data/results/quick/noise-3.csv, 2 rows, sha256 ") == 1


def test_card_says_nothing_that_differs_between_executions_or_machines(recorded):
    html = card.provenance_card("noise-3")._repr_html_()
    path = recorded / "stage" / "results" / "noise-3.json"
    changed = json.loads(path.read_text()) | {"seconds": 99.0, "cores": 128, "machine": "arm64"}
    path.write_text(json.dumps(changed))
    assert card.provenance_card("noise-3")._repr_html_() == html
    assert str(recorded) not in html
    ElementTree.fromstring(html)


def test_card_says_by_which_code_a_table_was_made(recorded):
    path = recorded / "stage" / "results" / "noise-3.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source_sha256": "0" * 64}))
    assert "made by dprl 0.1.0, source 0000000000" in str(card.provenance_card("noise-3"))


def test_card_without_tables_needs_a_seed_to_show_one(recorded):
    assert "seed" not in str(card.provenance_card())
    assert "seed: 3" in str(card.provenance_card(seed=3))


def test_card_refuses_missing_and_edited_tables(recorded):
    with pytest.raises(records.RecordError, match="no record 'figure-9'"):
        card.provenance_card("figure-9")
    (recorded / "stage" / "results" / "noise-3.csv").write_text("a,b\n")
    with pytest.raises(records.RecordError, match="edited"):
        card.provenance_card("noise-3")
