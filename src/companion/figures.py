r"""Figures: one look over the whole book, and how a figure gets its caption and numbers.

At the top of a page, in a cell tagged ``remove-cell``::

    from companion import claims, figures, records
    figures.use_style()

A figure is drawn in one cell (tagged ``hide-input``) and placed where the text wants it, with
alternative text, a caption that holds computed numbers, and a name to refer to::

    ```{code-cell} ipython3
    :tags: [hide-input]

    fig, ax = figures.panels()
    for name, part in table.groupby("algorithm"):
        figures.band(ax, part.batch_size, part["mean"], part.standard_error, name,
                     **figures.algorithm_style(name))
    ax.set(xscale="log", yscale="log", xlabel="batch size (trajectories)", ylabel="RMSE")
    figures.label_ends(ax)
    figures.glue_figure("rmse", fig)
    figures.number("rmse-runs", table.runs.max())
    ```

    :::{glue:figure} rmse
    :name: fig-3-rmse
    :alt: RMSE falls with the batch size for all four algorithms; the private ones lie above.

    RMSE over batch size; mean of {glue:text}`rmse-runs` runs, bands are one standard error.
    :::

    {numref}`fig-3-rmse` shows ...

``:name:`` is unique over the whole book; names given to ``glue_figure`` and ``number`` are
unique on their page. Text in a caption is MyST, so formulas, citations and cross references
work. Always glue through :func:`number`: a NumPy scalar that is glued directly reads
``np.float64(0.1)`` on the page, and the format in ``{glue:text}`x:.3g``` fails on it.
Alternative text cannot hold glued numbers: describe the shape of the figure there.
"""

from __future__ import annotations

import decimal
import functools
import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.transforms import Affine2D, ScaledTranslation
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from ._jupyter import in_jupyter, publish, use_svg
from ._numbers import plain, significant, tidy
from .files import current_run, is_name

#: Okabe and Ito's palette: told apart with every common colour blindness.
PALETTE = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky blue": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
}

_DASHES = {"solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.5)), "dash-dot": "-."}

# colour, marker, line: private algorithms are dashed, a pair shares its marker's shape
_ALGORITHMS = {
    "LSW": ("blue", "o", "solid"),
    "LSL": ("green", "s", "solid"),
    "DP-LSW": ("vermilion", "o", "dashed"),
    "DP-LSL": ("purple", "s", "dashed"),
    "LSTD": ("black", "^", "solid"),
    "WIS-LSTD": ("black", "v", "dash-dot"),
    "GPOPE": ("orange", "D", "dashed"),
    "DP-LSTD": ("orange", "^", "dashed"),
    "SA-LSW": ("sky blue", "o", "dotted"),
    "SA-LSL": ("sky blue", "s", "dotted"),
    "BCQ": ("blue", "P", "solid"),
    "DDPG": ("green", "X", "solid"),
    "PPO": ("vermilion", "D", "solid"),
    "SAC": ("purple", "v", "dash-dot"),
    "Thompson sampling": ("blue", "p", "solid"),
    "exact": ("black", None, "dotted"),
    "random": ("black", "x", "dotted"),
}

_GLUE_PREFIX = "application/papermill.record/"

# The column of a page is 784 CSS pixels, 8.2 in. A figure 5.2 in wide shrinks on a phone of
# 390 px to about 0.7, so that text of 12 pt is still 11 px high.
_WIDE, _NARROW, _HEIGHT = 8.2, 5.2, 3.5

_STYLE: dict[str, Any] = {
    "figure.figsize": (_NARROW, _HEIGHT),
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    "font.size": 12,
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "dprl",
    "axes.prop_cycle": cycler(
        color=[PALETTE[c] for c in ("blue", "vermilion", "green", "purple", "orange", "black")],
        linestyle=["-", _DASHES["dashed"], "-.", _DASHES["dotted"], "-", _DASHES["dashed"]],
        marker=["o", "s", "^", "v", "D", "P"],
    ),
}


_NO_METADATA: dict[str, str | None] = {"Date": None, "Creator": None}


class FigureError(ValueError):
    """A figure, or a number beside it, cannot be shown."""


def use_style() -> None:
    """Give every figure of this page the book's look.

    In Jupyter they are shown as SVG without a date: two executions give the same bytes.
    """
    mpl.rcdefaults()  # whatever a reader's own configuration says
    plt.style.use(_STYLE)
    if in_jupyter():
        use_svg(_NO_METADATA)


def panels(count: int = 1, *, height: float = _HEIGHT, **options: Any) -> tuple[Figure, Any]:
    """Figure and its panels: side by side on a screen, one below the other on a phone.

    One panel gives an Axes, more give a vector of them. ``height`` is one panel's, in inches; the
    options are those of :func:`matplotlib.pyplot.subplots`.
    """
    if count < 1:
        raise FigureError(f"a figure needs at least one panel, got {count}")
    return plt.subplots(count, figsize=(_NARROW, height * count), **options)


def _arrange(figure: Figure, across: int, width: float, height: float) -> None:
    """Move the panels into a grid; only the outer ones show the scales and names they share."""
    rows = -(-len(figure.axes) // across)
    figure.set_size_inches(width, height * rows)
    grid = GridSpec(rows, across, figure=figure)
    for place, ax in enumerate(figure.axes):
        ax.set_subplotspec(grid[place])
        for axis, group, side, outer in (
            (ax.xaxis, ax.get_shared_x_axes(), "labelbottom", place + across >= len(figure.axes)),
            (ax.yaxis, ax.get_shared_y_axes(), "labelleft", place % across == 0),
        ):
            shared = [getattr(other, f"{axis.axis_name}axis") for other in group.get_siblings(ax)]
            if len(shared) > 1:
                axis.set_tick_params(which="both", **{side: outer})
                axis.label.set_visible(outer)
                axis.set_label_text(next(filter(None, (a.get_label_text() for a in shared)), ""))


def algorithm_style(name: str) -> dict[str, Any]:
    """Colour, marker and line of an algorithm, the same all over the book.

    They are keyword arguments of ``Axes.plot`` and of :func:`band`. An algorithm that has no style
    yet is a :class:`FigureError`: give it one in this module.
    """
    if name not in _ALGORITHMS:
        raise FigureError(f"no style for {name!r}; known: {', '.join(_ALGORITHMS)}")
    colour, marker, line = _ALGORITHMS[name]
    return {"color": PALETTE[colour], "marker": marker, "linestyle": _DASHES[line]}


def band(
    ax: Axes,
    x: ArrayLike,
    mean: ArrayLike,
    standard_error: ArrayLike,
    label: str | None = None,
    *,
    factor: float = 1.0,
    **style: Any,
) -> None:
    """Draw a mean as a line and its uncertainty as a band around it.

    On a logarithmic axis a band that reaches zero or below runs down to the edge of the
    axes; it does not stretch the axis. Set the scale before or after, as you like.

    Parameters
    ----------
    ax : Axes
    x, mean, standard_error : array_like, shape (n,)
        Points are joined in the order of x. A mean of NaN leaves a gap.
    label : str, optional
        For the legend.
    factor : float
        Half width of the band in standard errors.
    **style
        Of the line, see :func:`algorithm_style`.

    Raises
    ------
    FigureError
        If shapes differ, a value is infinite, or a standard error is negative.
    """
    x, mean, half = _points(x, mean, standard_error, factor)
    (line,) = ax.plot(x, mean, label=label, **style)
    low, high = mean - half, mean + half
    colour = line.get_color()
    known = np.isfinite(half) & np.isfinite(mean)
    filled = FillBetweenPolyCollection(
        "x", x, low, high, where=known, color=colour, alpha=0.2, lw=0
    )
    ax.add_collection(filled, autolim=False)
    if ax.get_yscale() == "log":
        low = np.maximum(low, mean / 10)
    ax.update_datalim(np.column_stack([np.r_[x, x], np.r_[low, high]]))
    ax.autoscale_view()


def reference_line(ax: Axes, height: float, label: str) -> None:
    """Draw a thin black horizontal line, at a height in data units; the label names it."""
    ax.axhline(height, color="black", linewidth=1, marker="", linestyle="-", label=label)


def legend_below(ax: Axes, columns: int = 2) -> None:
    """Put the legend under the axes and their x label; two columns (>= 1) fit a phone."""
    if columns < 1:
        raise FigureError(f"a legend needs at least one column, got {columns!r}")
    # in points below the axes: the same distance whatever the height of the panel
    down = 44 if ax.get_xlabel() else 26
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes of a removed figure"
    offset = ScaledTranslation(0, -down / 72, figure.dpi_scale_trans)
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=ax.transAxes + offset,
        ncols=columns,
        fontsize="small",
        borderaxespad=0.2,
        columnspacing=1.2,
    )


def label_ends(ax: Axes) -> None:
    """Name every labelled curve of a panel at its right end: no legend to look up.

    Names have the colour of their curves, as dark as text on white must be. They stand in one
    column to the right of the curves and are moved apart where curves end close together. They
    find their places whenever the figure is drawn, so scales and limits may be set later, and the
    narrow rendering has its own; the layout leaves them room. A long name may hold a line break.
    A curve whose label begins with ``_`` gets no name.

    Parameters
    ----------
    ax : Axes
        With two to five lines drawn by ``plot``, :func:`band` or :func:`reference_line`. A name
        stands at the last point that is within the limits of x; above or below the axes, at
        their edge.

    Raises
    ------
    FigureError
        If no line has a label, or one with a label has no finite point.

    Examples
    --------
    >>> fig, ax = panels()
    >>> for power in (1, 2):
    ...     _ = ax.plot([1, 10], [1, 10**power], label=f"power {power}")
    >>> label_ends(ax)
    >>> [name.get_text() for name in ax.texts]
    ['power 1', 'power 2']
    >>> plt.close(fig)
    """
    curves = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    if not curves:
        raise FigureError("no line of these axes has a label that could stand at its end")
    for line in curves:
        if not np.isfinite(line.get_xydata()).all(axis=1).any():
            raise FigureError(f"the curve {line.get_label()!r} has no finite point")
    size = FontProperties(size=mpl.rcParams["legend.fontsize"]).get_size_in_points()
    # lines of text with the space to the next name, in points
    tall = 1.25 * size * np.array([1 + str(line.get_label()).count("\n") for line in curves])
    for which, line in enumerate(curves):
        ax.annotate(
            str(line.get_label()),
            (0, 0),
            (6, 0),
            xycoords=functools.partial(_place_of_name, ax, curves, which, tall),
            textcoords="offset points",
            annotation_clip=False,
            verticalalignment="center",
            fontsize=size,
            color=_dark(line.get_color()),
        )


def _place_of_name(
    ax: Axes, curves: Sequence[Line2D], which: int, tall: np.ndarray, renderer: RendererBase
) -> Affine2D:
    """Where the name of one curve belongs, in pixels of the figure as it is now."""
    box = ax.bbox
    ends = {}
    for line in ax.lines:
        points = line.get_transform().transform(line.get_xydata())
        points = points[np.isfinite(points).all(axis=1)]
        shown = points[points[:, 0] <= box.x1 + 0.5]
        points = shown if len(shown) else points
        if len(points):
            ends[line] = points[np.argmax(points[:, 0])]
    heights = np.array([ends[line][1] for line in curves])
    pixels = np.asarray(renderer.points_to_pixels(tall), dtype=float)
    places = _spread(heights, pixels, box.y0, box.y1)
    # right of lines without a name, too: none runs through a name
    right = max(x for x, _ in ends.values())
    return Affine2D().translate(min(right, box.x1), places[which])


def _spread(wish: np.ndarray, tall: np.ndarray, low: float, high: float) -> np.ndarray:
    """The middles of boxes so tall, one above the other between low and high, nearest to a wish."""
    order = np.argsort(wish, kind="stable")
    half = tall[order] / 2
    steps = np.r_[0.0, np.cumsum(half[:-1] + half[1:])]
    wanted = wish[order] - steps
    fitted = isotonic_regression(wanted).x  # least squares under an order
    places = np.empty(len(wish))
    lowest, highest = low + half[0], high - half[-1] - steps[-1]
    places[order] = np.clip(fitted, lowest, max(lowest, highest)) + steps
    return places


def _dark(colour: Any) -> tuple[float, float, float]:
    """This colour, darkened until text of it has a contrast of about 4.5 to white."""
    rgb = np.array(to_rgb(colour))
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ rgb**2.2)
    red, green, blue = rgb * min(1.0, 0.175 / max(luminance, 1e-9)) ** (1 / 2.2)
    return float(red), float(green), float(blue)


def _points(
    x: ArrayLike, mean: ArrayLike, standard_error: ArrayLike, factor: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = [np.asarray(v, dtype=float) for v in (x, mean, standard_error)]
    if not values[0].size or any(v.ndim != 1 or v.shape != values[0].shape for v in values):
        raise FigureError(
            "x, mean and standard_error must be vectors of one length, got shapes "
            + ", ".join(str(v.shape) for v in values)
        )
    if any(np.isinf(v).any() for v in values) or np.isnan(values[0]).any():
        raise FigureError("x must be finite, mean and standard_error must not be infinite")
    if (values[2] < 0).any():
        raise FigureError("a standard error must not be negative")
    if not (math.isfinite(factor) and factor >= 0):
        raise FigureError(f"factor must be finite and not negative, got {factor!r}")
    order = np.argsort(values[0], kind="stable")
    x, mean, half = (v[order] for v in values)
    return x, mean, factor * half


def glue_figure(name: str, figure: Figure, *, across: int | None = None) -> None:
    """Hand a figure over to the page's text, as SVG for a screen and for a phone, and close it.

    The text places it with ``{glue:figure}``, see the module; a reader in Jupyter sees it below its
    cell. The name is lower-case words or numbers joined by ``-`` or ``.``; ``across`` panels stand
    side by side on a screen, by default all of up to three, else two. A malformed name, and a
    figure that is none or holds no axes, is a :class:`FigureError`.
    """
    _check_name(name)
    if not isinstance(figure, Figure):
        raise FigureError(f"{name}: expected a matplotlib Figure, got {type(figure).__name__}")
    if not figure.axes:
        raise FigureError(f"{name}: the figure holds no axes")
    count, height = len(figure.axes), figure.get_figheight() / len(figure.axes)
    across = across or (count if count <= 3 else 2)
    for key, columns, width in ((f"{name}-narrow", 1, _NARROW), (name, across, _WIDE)):
        _arrange(figure, columns, width, height)
        bundle = {"image/svg+xml": svg(figure), "text/plain": repr(figure)}
        _publish(key, bundle, show=key == name)
    plt.close(figure)


def number(name: str, value: object, fmt: str | None = None) -> None:
    """Hand a number over to the page's text, as :func:`typeset`; use it as ``{glue:text}`name```.

    It returns nothing, so that it may be the last line of a cell.
    """
    _check_name(name)
    try:
        text = typeset(value, fmt)
    except FigureError as error:
        raise FigureError(f"{name}: {error}") from None
    _publish(name, {"text/plain": repr(text)}, show=False)


#: How a number is rounded that is stated as a bound.
_ROUNDED = {"↓": decimal.ROUND_FLOOR, "↑": decimal.ROUND_CEILING}


def typeset(value: object, fmt: str | None = None) -> str:
    """Write one number (bool, int, float, NumPy scalar) as the page shows it; a text stays as it
    is.

    ``fmt`` is a format specification such as ``.3f``, ``,d`` or ``.2%``; by default there are four
    significant digits. An arrow after it says that the number is stated as a bound, and rounded
    down or up. Exponents, signs and thousands separators are typeset. NaN, what is not one
    number, and what does not fit the format is a :class:`FigureError`.

    >>> typeset(np.float64(123456.7), ".2e"), typeset(3e5, ",d"), typeset(0.25, ".0%")
    ('1.23×10⁵', '300\\u202f000', '25%')
    >>> typeset(258.99, ".0f"), typeset(258.99, ".0f↓"), typeset(0.101, ".1f↑")
    ('259', '258', '0.2')
    """
    value = plain(value)
    if isinstance(value, str):
        if fmt is not None:
            raise FigureError(f"a text takes no format, got {fmt!r}")
        return value
    if not isinstance(value, bool | int | float):
        raise FigureError(f"expected one number or text, got {type(value).__name__}")
    if isinstance(value, float) and math.isnan(value):
        raise FigureError("the value is not a number (NaN)")
    if fmt is None:
        return significant(value)
    rounding = _ROUNDED.get(fmt[-1:])
    fmt = fmt.rstrip("".join(_ROUNDED))
    if fmt.endswith("d") and isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        if rounding is None or not math.isfinite(value):
            return tidy(format(value, fmt))
        with decimal.localcontext(rounding=rounding):
            return tidy(format(decimal.Decimal(value), fmt))
    except ValueError as error:
        raise FigureError(f"{value!r} does not fit the format {fmt!r}: {error}") from error


def svg(figure: Figure) -> str:
    """The figure as SVG: same figure, same bytes, whenever and wherever it is drawn."""
    with mpl.rc_context({"svg.hashsalt": "dprl", "svg.fonttype": "path"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()


def _check_name(name: str) -> None:
    if not is_name(name):
        raise FigureError(
            f"a glued name is lower-case words or numbers joined by - or ., got {name!r}"
        )


def _publish(name: str, bundle: dict[str, str], *, show: bool) -> None:
    """Put a named output into the notebook, where ``{glue:...}`` finds it."""
    if not in_jupyter():
        return
    prefix = "" if show and current_run().interactive else _GLUE_PREFIX
    publish(
        {prefix + mime: content for mime, content in bundle.items()},
        {"scrapbook": {"name": name, "mime_prefix": prefix}},
    )
