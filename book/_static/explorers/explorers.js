// What all explorers share: controls, plots by uPlot, the sentence that says what they show.
//
// An explorer is defined in catalogue.js by its controls, its plots and one function, `compute`,
// from the values of the controls to curves and a sentence. It is placed by the directive
// {explorer}, which also hands over the constants that the package computed.
(() => {
  "use strict";
  const COLOURS = {
    light: { blue: "#0072B2", red: "#C24A00", green: "#00775A", purple: "#9A3C78", orange: "#9A6B00", ink: "#222222", grey: "#8A8A8A", grid: "#8886" },
    dark: { blue: "#56B4E9", red: "#FF8A3D", green: "#2FC79B", purple: "#E79BC6", orange: "#F0C04A", ink: "#EEEEEE", grey: "#9A9A9A", grid: "#8886" },
  };
  const DASHES = { solid: undefined, dashed: [8, 5], dotted: [2, 4], "dash-dot": [9, 4, 2, 4] };
  const FONT = "13px system-ui, sans-serif";
  const html = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");
  const colour = (name) => COLOURS[theme()][name];

  // -- numbers as text --------------------------------------------------------------------------

  const raised = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  // Three digits; powers of ten where a number is very small or very large.
  function show(x, digits = 3) {
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "undefined" : x > 0 ? "∞" : "−∞";
    if (x === 0) return "0";
    const size = Math.abs(x), sign = x < 0 ? "−" : "";
    if (size >= 1e-3 && size < 1e7) {
      return sign + Number(size.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 12 });
    }
    const [mantissa, exponent] = size.toExponential(digits - 1).split("e");
    const factor = Number(mantissa) === 1 ? "" : `${Number(mantissa)}·`;
    return `${sign}${factor}10${raised(Number(exponent))}`;
  }

  // "e^{x}" as nodes, with a raised x.
  const rich = (text) => text.split(/\^\{([^}]*)\}/).map((part, i) => (i % 2 ? html("sup", {}, part) : part));
  const plain = (text) => text.replace(/\^\{([^}]*)\}/g, "^$1");

  // -- controls -----------------------------------------------------------------------------------


  // The values of a slider: on a logarithmic one ten to a decade, all of them round.
  const ROUND = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  function valuesOf({ from, to, log, whole, step, steps }) {
    if (steps) return steps;
    if (!log) return Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => Number((from + i * step).toFixed(6)));
    const found = [];
    for (let e = Math.floor(Math.log10(from)); e <= Math.log10(to); e++) {
      found.push(...ROUND.map((digit) => Number(`${digit}e${e}`)));
    }
    return found.filter((x) => x >= from && x <= to && (!whole || Number.isInteger(x)));
  }

  function slider(control) {
    const values = valuesOf(control);
    const input = html("input", { type: "range", min: 0, max: values.length - 1, step: 1 });
    const shown = html("span", { className: "explorer-value" });
    const node = html("label", {}, html("span", {}, `${control.label} = `, shown), input);
    const read = () => values[Number(input.value)];
    const write = (x) => { input.value = values.indexOf(x); };
    const say = () => {
      shown.textContent = show(read());
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    write(control.value);
    return { node, input, read, write, say };
  }

  function choice({ label, options, value }) {
    const input = html("select", {}, ...options.map(([key, text]) => html("option", { value: key, textContent: text })));
    const write = (x) => { input.value = x; };
    write(value);
    return { node: html("label", {}, html("span", {}, label), input), input, read: () => input.value, write, say: () => {} };
  }

  // -- plots ----------------------------------------------------------------------------------------

  function powers(low, high) {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    const step = Math.max(1, Math.ceil((b - a) / 5));
    const found = [];
    for (let e = Math.ceil(a / step) * step; e <= b + 1e-9; e += step) {
      for (const digit of b - a < 1.5 ? [1, 2, 5] : [1]) if (digit * 10 ** e <= high) found.push(digit * 10 ** e);
    }
    return found;
  }
  const tick = (x) => {
    const e = Math.round(Math.log10(x));
    return (e < -2 || e > 3) && Math.abs(x / 10 ** e - 1) < 1e-9 ? `10${raised(e)}` : show(x);
  };

  function axis({ label, log, ticks }, size) {
    return {
      label, size, labelSize: 20, font: FONT, labelFont: FONT, gap: 4,
      stroke: () => colour("ink"),
      grid: { stroke: () => colour("grid"), width: 0.6 },
      ticks: { stroke: () => colour("grid"), width: 0.6, size: 4 },
      ...(log && { splits: (u, i, low, high) => powers(low, high), filter: (u, splits) => splits }),
      ...(ticks && { splits: () => ticks.map((t) => t[0]), filter: (u, splits) => splits }),
      values: (u, splits) => splits.map(ticks ? (x) => (ticks.find((t) => t[0] === x) || ["", ""])[1]
        : log ? tick : (x) => show(x).replace("-", "−")),
    };
  }

  function plot(spec) {
    let view = null;
    const canvas = html("div", { className: "explorer-canvas" });
    canvas.setAttribute("role", "img");
    const legend = html("ul", { className: "explorer-legend" });
    const node = html("div", { className: "explorer-plot" }, canvas, legend);
    const series = spec.series.map(({ colour: name, line, points }) => ({
      stroke: () => (line === "none" ? "transparent" : colour(name)),
      width: points ? 0 : 2.2,
      dash: DASHES[line || "solid"],
      ...(points && { paths: () => null }),
      points: { show: Boolean(points), size: points === true ? 9 : points, fill: () => colour(name), stroke: () => colour(name), width: 1 },
    }));
    const bands = spec.series.flatMap(({ fill, colour: name }, i) =>
      fill === undefined ? [] : [{ series: [i + 1, fill + 1], fill: () => `${colour(name)}55` }]);
    const items = spec.series.map(({ name, colour: shade, line, points, fill }) => {
      const swatch = html("span", { className: `explorer-swatch ${points ? "is-point" : `is-${line || "solid"}`}${fill === undefined ? "" : " is-area"}` });
      swatch.setAttribute("aria-hidden", "true");
      swatch.dataset.colour = shade;
      const item = html("li", {}, swatch, html("span", {}, ...rich(name)));
      if (name) legend.append(item);
      return item;
    });
    const scale = (which) => ({
      ...(spec[which].log && { distr: 3 }),
      time: false, auto: false,
      range: () => view[which],
    });
    const height = spec.height || 270;
    let drawn = null;
    const table = () => uPlot.join(view.curves.map(({ x, y }) => [x, y]), view.curves.map(() => [1]));
    const widthOf = () => Math.max(200, Math.floor(canvas.clientWidth));

    function update(next) {
      view = next;
      // Of a curve on a logarithmic axis only what is positive can be drawn.
      view.curves = view.curves.map(({ x, y }) => ({
        x: x.length ? x : [view.x[0]],
        y: x.length ? y.map((v) => (v === null || !Number.isFinite(v) || (spec.y.log && v <= 0) ? null : v)) : [null],
      }));
      canvas.setAttribute("aria-label", view.alt || spec.alt);
      items.forEach((item, i) => { item.hidden = view.curves[i].y.every((v) => v === null); });
      if (drawn) return drawn.setData(table(), true);
      const options = {
        width: widthOf(), height, pxAlign: 0, series: [{}, ...series], bands,
        scales: { x: scale("x"), y: scale("y") },
        axes: [axis(spec.x, 34), axis(spec.y, 54)],
        legend: { show: false }, cursor: { show: false }, select: { show: false },
        padding: [10, 14, 0, 0],
      };
      drawn = new uPlot(options, table(), canvas);
      new ResizeObserver(() => {
        if (widthOf() !== drawn.width) drawn.setSize({ width: widthOf(), height });
      }).observe(canvas);
      return drawn;
    }
    const repaint = () => {
      node.querySelectorAll(".explorer-swatch").forEach((s) => { s.style.color = colour(s.dataset.colour); });
      if (drawn) drawn.redraw(false, true);
    };
    return { node, update, repaint };
  }

  // -- an explorer on its page --------------------------------------------------------------------

  const catalogue = {};

  function build(mount) {
    const spec = catalogue[mount.dataset.explorer];
    const constants = JSON.parse(mount.querySelector("script").textContent);
    const definition = spec(constants);
    const controls = definition.controls.map((control) => ({
      ...control, ...(control.options ? choice : slider)(control),
    }));
    const form = html("div", { className: "explorer-controls" }, ...controls.map((c) => c.node));
    const reset = html("button", { type: "button", className: "explorer-button", textContent: "Reset" });
    const buttons = html("div", { className: "explorer-buttons" }, reset);
    const plots = definition.plots.map(plot);
    const area = html("div", { className: "explorer-plots" }, ...plots.map((p) => p.node));
    const says = html("p", { className: "explorer-says" });
    // A screen reader hears the sentence when the control has come to rest.
    const heard = html("p", { className: "explorer-heard" });
    heard.setAttribute("role", "status");
    let waiting;

    function values() {
      return Object.fromEntries(controls.map((c) => [c.key, c.read()]));
    }
    function update(announce) {
      const now = values();
      controls.forEach((c) => {
        c.say();
        c.node.hidden = Boolean(c.when && !c.when(now));
      });
      const found = definition.compute(now);
      plots.forEach((p, i) => p.update(found.plots[i]));
      says.replaceChildren(...rich(found.says));
      clearTimeout(waiting);
      if (announce) waiting = setTimeout(() => { heard.textContent = plain(found.says); }, 700);
    }
    controls.forEach((c) => c.input.addEventListener("input", () => update(true)));
    reset.addEventListener("click", () => {
      controls.forEach((c) => c.write(c.value));
      update(true);
    });
    if (definition.again) {
      const again = html("button", { type: "button", className: "explorer-button", textContent: definition.again.label });
      again.addEventListener("click", () => { definition.again.draw(); update(true); });
      buttons.prepend(again);
    }
    mount.replaceChildren(form, buttons, area, says, heard);
    update(false);
    const repaint = () => plots.forEach((p) => p.repaint());
    repaint();
    new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    mount.dataset.ready = "true";
  }

  globalThis.dprl.show = show;
  globalThis.dprl.explorers = catalogue;
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-explorer]").forEach(build));
})();
