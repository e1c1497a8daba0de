// The explorers of the book: controls with defaults and ranges, plots, and what they compute.
//
// catalogue[NAME](constants) returns { controls, plots, compute }; `constants` are what
// book/_ext/explorers.py hands over. compute(values) returns { says, plots: [{ x, y, curves }] }
// with the ranges of both axes and, in the order of `series`, the points of each curve.
(() => {
  "use strict";
  const D = globalThis.dprl, catalogue = D.explorers, show = D.show;
  const line = (low, high, n) => Array.from({ length: n + 1 }, (_, i) => low + ((high - low) * i) / n);
  const logline = (low, high, n) => line(Math.log10(low), Math.log10(high), n).map((t) => 10 ** t);
  const wholes = (low, high, n) => [...new Set(logline(low, high, n).map(Math.round))];
  const curve = (x, f) => ({ x, y: x.map(f) });
  const point = (x, y) => ({ x: [x], y: [y] });
  const level = ([low, high], y) => ({ x: [low, high], y: [y, y] });
  const within = (x, [low, high]) => Math.min(Math.max(x, low), high);
  const most = (...values) => Math.max(...values.flat().filter(Number.isFinite));

  const EPSILON = { key: "epsilon", label: "ε", from: 0.01, to: 5, value: 0.1, log: true };
  const DELTA = { key: "delta", label: "δ", from: 1e-9, to: 0.5, value: 0.1, log: true };

  // 1 -- The Gaussian mechanism: the overlap of two densities, and delta as an area.
  catalogue["two-gaussians"] = () => ({
    controls: [
      { key: "distance", label: "distance of the means Δ", from: 0, to: 4, value: 1, step: 0.05 },
      { key: "sigma", label: "noise σ", from: 0.2, to: 20, value: 1, log: true },
      { key: "epsilon", label: "ε", from: 0, to: 5, value: 1, step: 0.05 },
    ],
    plots: [
      {
        alt: "The density of the release, and e to the epsilon times that of the neighbour's; the area where the first is higher is shaded.",
        x: { label: "released number z, in units of σ" }, y: { label: "density × σ" },
        series: [
          { name: "p", colour: "blue" },
          { name: "e^{ε} p′", colour: "red", line: "dashed" },
          { name: "", colour: "ink", line: "none" },
          { name: "area δ", colour: "ink", line: "none", fill: 2 },
        ],
      },
      {
        alt: "Delta over epsilon on a logarithmic axis, falling; a dot marks the setting.",
        x: { label: "ε" }, y: { label: "δ(ε)", log: true },
        series: [{ name: "δ(ε)", colour: "blue" }, { name: "you are here", colour: "ink", points: true }],
      },
    ],
    compute({ distance, sigma, epsilon }) {
      const s = distance / sigma, delta = D.gaussian_delta(distance, sigma, epsilon);
      const x = [-4.5, Math.max(4.5, s + 3)], z = line(...x, 400);
      const p = z.map(D.normal_density), q = z.map((v) => Math.exp(epsilon) * D.normal_density(v - s));
      // The area of delta: from min(p, q) up to p.
      const lower = p.map((v, i) => (v > q[i] ? q[i] : v)), e = line(0, 5, 200);
      const profile = curve(e, (t) => D.gaussian_delta(distance, sigma, t));
      const range = [1e-12, 1];
      const asked = delta > 0 && delta < 1 && epsilon > 0 ? D.classical_gaussian_sigma(distance, epsilon, delta) : NaN;
      let says = `δ = ${show(delta)}, the shaded area. At ε = 0 it is ${show(D.gaussian_delta(distance, sigma, 0))}, the total variation distance. `;
      if (Number.isFinite(asked)) {
        says += `For this ε and δ the classical formula asks for σ = ${show(asked)}`;
        says += epsilon < 1 ? "." : `${asked < sigma ? ", too little" : ""}; it is proved for ε below 1 only.`;
      }
      return {
        says,
        plots: [
          {
            x, y: [0, 0.55],
            curves: [{ x: z, y: p }, { x: z, y: q }, { x: z, y: lower }, { x: z, y: p.map((v, i) => Math.max(v, lower[i])) }],
          },
          { x: [0, 5], y: range, curves: [profile, point(epsilon, delta >= range[0] ? delta : null)] },
        ],
      };
    },
  });

  // 2 -- DP-LSW: phi(k), the discounted bound, psi, and where the maximum jumps.
  catalogue["smooth-bound"] = () => ({
    controls: [
      { key: "states", label: "states N", from: 2, to: 100, value: 40, step: 1 },
      { key: "m", label: "trajectories m", from: 10, to: 1e6, value: 3000, log: true, whole: true },
      { key: "start", label: "episodes start", options: [["first", "all in state 1"], ["uniform", "anywhere"]], value: "first" },
      EPSILON, DELTA,
    ],
    plots: [
      {
        alt: "The bound phi of k, the discounted bound, and its maximum psi over the number of replaced trajectories.",
        x: { label: "replaced trajectories k" }, y: { label: "squared sensitivity", log: true },
        series: [
          { name: "φ(k)", colour: "blue" },
          { name: "discounted, e^{−kβ} φ(k)", colour: "red", line: "dashed" },
          { name: "ψ, the largest of them", colour: "ink", points: true },
        ],
      },
      {
        alt: "The replaced trajectories k at which the maximum is attained, over m: rising with m, then zero.",
        x: { label: "trajectories m", log: true }, y: { label: "k* / m" },
        series: [{ name: "place of the maximum, k* / m", colour: "green", points: 5 }, { name: "you are here", colour: "ink", points: true }],
      },
    ],
    compute({ states, m, start, epsilon, delta }) {
      const [, beta] = D.smoothing_constants(epsilon, delta, states), weights = Array(states).fill(1);
      const counts = D.expected_counts(states, start, m);
      const [psi, k] = D.lsw_smooth_bound(counts, weights, beta);
      const phi = (t) => D.lsw_local_bound(counts, weights, t), end = Math.max(1.1 * m, 10);
      const at = [...new Set([...line(0, end, 240), ...counts.flatMap((v) => [v - 1, v])])].filter((v) => v >= 0).sort((a, b) => a - b);
      const top = phi(end) * 3, low = Math.max(Math.min(phi(0), psi) / 10, top * 1e-15);
      const sizes = wholes(10, 1e6, 150);
      const jumps = sizes.map((size) => D.lsw_smooth_bound(D.expected_counts(states, start, size), weights, beta)[1] / size);
      const excess = Math.sqrt(psi / phi(0));
      return {
        says: k > 0
          ? `The maximum is at k = ${show(k, 6)}: noise must guard against ${show(k, 6)} replacements, and is ${show(excess)} times what the local sensitivity asks for (1/β = ${show(1 / beta)}).`
          : `The maximum is at k = 0: the noise is that of the local sensitivity, as small as it can be (1/β = ${show(1 / beta)}).`,
        plots: [
          { x: [0, end], y: [low, top], curves: [curve(at, phi), curve(at, (t) => Math.exp(-beta * t) * phi(t)), point(k, psi)] },
          { x: [10, 1e6], y: [-0.05, 1.05], curves: [{ x: sizes, y: jumps }, point(m, k / m)] },
        ],
      };
    },
  });

  // 3 -- DP-LSW: how much noise, and one release.
  catalogue["dp-lsw-noise"] = ({ values }) => {
    const states = values.length, rms = Math.sqrt(values.reduce((t, v) => t + v * v, 0) / states);
    const gauss = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
    let normals = values.map(gauss);
    const shown = [-1, 2], sizes = logline(10, 1e7, 120), state = values.map((_, s) => s + 1);
    return {
      again: { label: "Draw again", draw: () => { normals = values.map(gauss); } },
      controls: [
        { key: "m", label: "trajectories m", from: 10, to: 1e7, value: 1e4, log: true, whole: true },
        EPSILON, DELTA,
        {
          key: "features", label: "features", value: "tabular",
          options: [["tabular", "one value per state"], ["aggregated", "pairs of states"], ["aggregated-orthonormal", "pairs, orthonormal"]],
        },
        { key: "start", label: "episodes start", options: [["first", "all in state 1"], ["uniform", "anywhere"]], value: "first" },
        { key: "f_max", label: "bound on returns", options: [["1", "1 (none is larger)"], ["100", "100 (the default)"]], value: "1" },
      ],
      plots: [
        {
          alt: "The noise of DP-LSW over the number of trajectories, logarithmic: flat, then falling steeply; a line marks the size of the values.",
          x: { label: "trajectories m", log: true }, y: { label: "noise σ", log: true },
          series: [
            { name: "noise σ", colour: "red", line: "dashed" },
            { name: "size of the values", colour: "ink", line: "dotted" },
            { name: "you are here", colour: "ink", points: true },
          ],
        },
        {
          alt: "The exact value of each state, and one private release of them.",
          x: { label: "state" }, y: { label: "value" },
          series: [{ name: "exact values", colour: "blue" }, { name: "one release (at the border: outside)", colour: "red", points: 6 }],
        },
      ],
      compute(choice) {
        const setting = { ...choice, states, f_max: Number(choice.f_max) };
        const sigma = (m) => D.lsw_noise({ ...setting, m }).sigma, noise = D.lsw_noise(setting);
        const pairs = choice.features !== "tabular", unit = choice.features === "aggregated-orthonormal" ? Math.SQRT1_2 : 1;
        const release = values.map((v, s) => {
          const first = s - (s % 2), mean = pairs ? (values[first] + values[first + 1]) / 2 : v;
          return within(mean + unit * noise.sigma * normals[pairs ? first / 2 : s], shown);
        });
        const gap = (t) => Math.log(sigma(Math.exp(t)) / (rms / 10));
        const enough = gap(Math.log(1e12)) > 0 ? Infinity : Math.exp(D.root((t) => -gap(t), Math.log(states), Math.log(1e12)));
        const ratio = noise.sigma / rms, range = [1e-4, 1e6];
        return {
          says: `σ = ${show(noise.sigma)}, ${ratio >= 1 ? `${show(ratio, 2)} times` : `${show(100 * ratio, 2)} % of`} the size of the values. `
            + (noise.distance > 0 ? `The smooth bound looks ${show(noise.distance, 6)} replacements away. ` : "The smooth bound equals the local sensitivity. ")
            + (Number.isFinite(enough) ? `A tenth of the values is reached at m ≈ ${show(enough, 2)}.` : "No m below 10¹² is enough."),
          plots: [
            { x: [10, 1e7], y: range, curves: [curve(sizes, sigma), level([10, 1e7], rms), point(choice.m, within(noise.sigma, range))] },
            { x: [1, states], y: shown, curves: [{ x: state, y: values }, { x: state, y: release }] },
          ],
        };
      },
    };
  };

  // 4 -- Theorem 3.17: printed, exact and corrected risk.
  catalogue["risk-bounds"] = () => ({
    controls: [
      { key: "m", label: "trajectories m", from: 1, to: 1e6, value: 1000, log: true, whole: true },
      { key: "dimension", label: "parameters d", from: 1, to: 200, value: 40, step: 1 },
      EPSILON, DELTA,
    ],
    plots: [{
      alt: "Exact risk, printed bound and corrected bound over the number of trajectories, logarithmic; the printed bound runs below the exact risk at first.",
      x: { label: "trajectories m", log: true }, y: { label: "excess risk", log: true }, height: 250,
      series: [
        { name: "exact risk", colour: "blue" },
        { name: "printed bound", colour: "red", line: "dashed" },
        { name: "corrected bound", colour: "green", line: "dash-dot" },
        { name: "you are here", colour: "ink", points: true },
      ],
    }],
    compute({ m, dimension, epsilon, delta }) {
      const constant = D.theorem_3_17_constant(dimension, { f_max: 1, epsilon, delta });
      const setting = { constant, beta: D.smoothing_constants(epsilon, delta, dimension)[1] };
      const of = (f) => (n) => f(n, setting);
      const [exact, printed, corrected] = ["excess_risk_equal_counts", "theorem_3_17_printed", "theorem_3_17_corrected"].map((n) => of(D[n]));
      const sizes = wholes(1, 1e6, 300), top = exact(1) * 30, onset = D.quadratic_regime_onset(setting.beta);
      const ratio = exact(m) / printed(m);
      return {
        says: `Exact risk ${show(exact(m))}, printed bound ${show(printed(m))}, corrected bound ${show(corrected(m))}. `
          + (ratio > 1 ? `The printed bound is violated by a factor of ${show(ratio)}. ` : "Here the printed bound holds. ")
          + `From m = ${show(Math.ceil(onset), 6)} on the exact risk falls like 1/m².`,
        plots: [{
          x: [1, 1e6], y: [top * 1e-13, top],
          curves: [curve(sizes, exact), curve(sizes, printed), curve(sizes, corrected), point(m, exact(m))],
        }],
      };
    },
  });

  // 5 -- Sub-sample-and-average beside plain noise.
  catalogue.subsampling = () => {
    const n = 10000, variance = 0.25, sizes = wholes(10, n, 160), range = [1e-4, 1e6];
    const series = [
      { name: "total", colour: "ink" },
      { name: "noise", colour: "red", line: "dashed" },
      { name: "sampling error", colour: "blue", line: "dash-dot" },
      { name: "plain mechanism", colour: "ink", line: "dotted" },
      { name: "you are here", colour: "ink", points: true },
    ];
    const y = { label: "error, in units of plain", log: true }, x = { label: "size of a sub-sample k", log: true };
    return {
      controls: [
        { key: "m", label: "sub-samples m", from: 1, to: 1e4, value: 15, log: true, whole: true },
        { key: "k", label: "records in each, k", from: 10, to: n, value: 1000, log: true, whole: true },
        { ...EPSILON, to: 1, value: 1 }, { ...DELTA, value: 1e-5 },
      ],
      plots: [
        { alt: "Noise as printed: total error, noise and sampling error over the size of a sub-sample, in units of the plain mechanism's.", x, y, series },
        { alt: "With the least noise that any accounting could certify: a lower bound on the total error, with its two parts.", x, y, series },
      ],
      compute({ m, k, epsilon, delta }) {
        const plain = D.plain_mechanism(epsilon, delta);
        const ways = [
          (size) => D.utility_ratio_printed(n, m, size, epsilon, delta, variance),
          (size) => D.utility_ratio_least(n, m, size, plain, variance),
        ];
        const [printed, least] = ways.map((way) => way(k));
        return {
          says: `n = 10,000 fair coins. With the noise as printed: ${Number.isFinite(printed.total) ? `${show(printed.total)} times the error of the plain mechanism` : "the printed formulas refuse this setting"}. `
            + `Whatever the accounting: at least ${show(least.total)} times, of which sampling ${show(least.sampling)}.`,
          plots: ways.map((way) => {
            const found = sizes.map(way), here = way(k).total;
            return {
              x: [10, n], y: range,
              curves: [
                ...["total", "noise", "sampling"].map((part) => ({ x: sizes, y: found.map((f) => f[part]) })),
                level([10, n], 1), point(k, Number.isFinite(here) ? within(here, range) : null),
              ],
            };
          }),
        };
      },
    };
  };

  // 6 -- The Gaussian game: membership and attribution.
  catalogue["gaussian-game"] = () => ({
    controls: [
      { key: "members", label: "training trajectories M", from: 2, to: 10000, value: 10, log: true, whole: true },
      { key: "dimensions", label: "dimensions d", from: 1, to: 200, value: 20, log: true, whole: true },
      { key: "spread", label: "distance between policies τ", from: 0, to: 3, value: 1, step: 0.05 },
      { key: "noise", label: "noise of the release s", from: 0, to: 5, value: 0, step: 0.05 },
    ],
    plots: [
      {
        alt: "The two receiver operating characteristics on linear axes, and the diagonal of guessing.",
        x: { label: "false positive rate" }, y: { label: "true positive rate" },
        series: [
          { name: "member or held-out (membership)", colour: "red" },
          { name: "member or other policy", colour: "blue", line: "dashed" },
          { name: "guessing", colour: "ink", line: "dotted" },
        ],
      },
      {
        alt: "The same on logarithmic axes, for low false positive rates.",
        x: { label: "false positive rate", log: true }, y: { label: "true positive rate", log: true },
        series: [
          { name: "member or held-out (membership)", colour: "red" },
          { name: "member or other policy", colour: "blue", line: "dashed" },
          { name: "guessing", colour: "ink", line: "dotted" },
        ],
      },
    ],
    compute(game) {
      const few = logline(1e-4, 1, 60), even = [0, ...logline(1e-4, 0.02, 12), ...line(0.03, 1, 50)];
      const roc = (x, kind) => curve(x, (f) => D.game_tpr(game, f, "member", kind));
      const [same, other] = ["held-out", "other"].map((kind) => D.game_auc(game, "member", kind));
      const tpr = (kind) => show(100 * D.game_tpr(game, 0.01, "member", kind));
      return {
        says: `AUC ${same.toFixed(3)} for members against held-out trajectories of the same policy, ${other.toFixed(3)} against those of another policy. `
          + `At a false positive rate of 1 % the attack finds ${tpr("held-out")} % and ${tpr("other")} % of the members.`,
        plots: [
          { x: [0, 1], y: [0, 1], curves: [roc(even, "held-out"), roc(even, "other"), { x: [0, 1], y: [0, 1] }] },
          { x: [1e-4, 1], y: [1e-4, 1], curves: [roc(few, "held-out"), roc(few, "other"), { x: few, y: few }] },
        ],
      };
    },
  });

  // 7 -- The noise of GPOPE, from above and from below: a table that the package computed.
  catalogue["gpope-noise"] = ({ rows, delta }) => {
    const sorted = (key) => [...new Set(rows.map((row) => row[key]))].sort((a, b) => a - b);
    const promises = sorted("epsilon"), x = [promises[0] / 1.5, promises.at(-1) * 1.5];
    return {
      controls: [
        { key: "m", label: "trajectories m", steps: sorted("m"), value: sorted("m").at(-1) },
        { key: "passes", label: "steps for each trajectory N/m", steps: sorted("passes"), value: 1 },
        { key: "epsilon", label: "promised ε", steps: promises, value: promises[0] },
      ],
      plots: [{
        alt: "Noise over the promised epsilon: the printed formula, and the noise that is certified to be enough and the noise below which the promise is broken, which nearly agree.",
        x: { label: "promised ε", log: true }, y: { label: "noise σ / clipping length", log: true }, height: 300,
        series: [
          { name: "printed", colour: "red", line: "dashed" },
          { name: "enough (certified)", colour: "blue", points: 10 },
          { name: "too little (explicit pair)", colour: "ink", points: 6 },
        ],
      }],
      compute({ m, passes, epsilon }) {
        const some = rows.filter((row) => row.m === m && row.passes === passes);
        const here = some.find((row) => row.epsilon === epsilon);
        const printed = (e) => D.theorem_1_sigma(e, delta, m, passes * m), at = some.map((row) => row.epsilon);
        const all = [...at.map(printed), ...some.map((row) => row.above), ...some.map((row) => row.below)];
        const ratio = here.below / printed(epsilon);
        return {
          says: `All iterates published, one trajectory replaced, ε = ${show(epsilon)}, δ = ${show(delta)}: printed σ = ${show(printed(epsilon))}; σ = ${show(here.above)} is enough, and below ${show(here.below)} the promise is broken. `
            + (ratio > 1 ? `The printed noise is too small by a factor of at least ${show(ratio)}.`
              : printed(epsilon) >= here.above ? "Here the printed noise is enough." : "The printed noise lies between the two."),
          plots: [{
            x, y: [Math.min(...all) / 2, Math.max(...all) * 2],
            curves: [curve(logline(...x, 40), printed), { x: at, y: some.map((r) => r.above) }, { x: at, y: some.map((r) => r.below) }],
          }],
        };
      },
    };
  };

  // 8 -- The comb: which answers of floating-point Laplace noise are possible.
  catalogue.comb = () => {
    const bits = 11, epsilons = line(0, 6, 60);
    return {
      controls: [
        { key: "scale", label: "noise σ", from: 1, to: 100, value: 1, log: true },
        { key: "from", label: "look at answers from y", from: -4, to: 4, value: 0.7, step: 0.05 },
      ],
      plots: [
        {
          alt: "64 neighbouring numbers in four rows: possible from the count 0 only, from both, from 1 only, from neither; the rows form irregular combs.",
          x: { label: "number after y" },
          y: { label: "possible from", ticks: [[3, "0 only"], [2, "both"], [1, "1 only"], [0, "neither"]] },
          series: [
            { name: "", colour: "blue", points: 6 }, { name: "", colour: "ink", points: 6 },
            { name: "", colour: "red", points: 6 }, { name: "", colour: "grey", points: 4 },
          ],
        },
        {
          alt: "Delta over epsilon: with these numbers it stays high, with real numbers it falls to zero at the promised epsilon.",
          x: { label: "ε" }, y: { label: "δ(ε)" },
          series: [{ name: "these numbers, exact", colour: "red" }, { name: "real numbers", colour: "ink", line: "dashed" }],
        },
      ],
      compute({ scale, from }) {
        const [p, q] = [0, 1].map((v) => D.rounded_law(v, scale, bits));
        const numbers = [];
        for (let y = D.rounded(from, bits); numbers.length < 64; y = D.next(y, bits)) numbers.push(y);
        const kinds = numbers.map((y) => (p.has(y) ? (q.has(y) ? 2 : 3) : q.has(y) ? 1 : 0));
        const row = (kind) => ({ x: numbers.map((_, i) => i), y: kinds.map((found) => (found === kind ? kind : null)) });
        const worst = (e) => Math.max(D.law_delta(p, q, e, bits), D.law_delta(q, p, e, bits));
        const share = [[p, q], [q, p]].map(([a, b]) => show(100 * D.impossible_share(a, b, bits)));
        return {
          says: `Promised: ε = ${show(1 / scale)}, δ = 0. But ${share[0]} % of the answers for the count 0 cannot come from the count 1, and ${share[1]} % the other way round, and no ε makes δ smaller than that. `
            + "Half precision, 11 bits: every uniform number is tried.",
          plots: [
            { x: [-1, 64], y: [-0.5, 3.5], curves: [3, 2, 1, 0].map(row) },
            { x: [0, 6], y: [-0.02, 1], curves: [curve(epsilons, worst), curve(epsilons, (e) => D.laplace_delta(1, scale, e))] },
          ],
        };
      },
    };
  };

  // 9 -- Which evaluator? The decision function, on public numbers.
  catalogue["which-evaluator"] = ({ models, free_shares, lstd_shares }) => {
    const is = (...names) => ({ problem }) => names.includes(problem);
    const looks = {
      "counts and sums, noise by visits": ["red", "dashed"],
      "counts and sums, equal noise": ["red", "dotted"],
      "RC without structure": ["orange", "dash-dot"],
      "RC, returns": ["purple", "dashed"],
      "RC, temporal differences": ["blue", "solid"],
      "private LSTD": ["green", "solid"],
    };
    const names = Object.keys(looks), sizes = wholes(10, 1e7, 120);
    function known(v) {
      if (v.problem === "chain") return models.find((one) => one.states === v.chain && one.start === v.start).forecasts.filter((f) => v.markov === "yes" || f.mechanism !== "RC, temporal differences");
      if (v.problem === "features") return D.forecasts_features({ dimension: v.states, residual: v.residual, discount: v.discount, width: v.width }, lstd_shares);
      const p = Array.from({ length: v.states }, (_, s) => v.rarest + ((1 - v.rarest) * s) / Math.max(v.states - 1, 1));
      return D.forecasts_states({ p, tau: p.map(() => v.spread), width: v.width, visits_known: v.visits === "yes" }, free_shares);
    }
    return {
      controls: [
        { key: "problem", label: "what is known", value: "states", options: [["states", "states, no model"], ["chain", "states, a family of chains"], ["features", "features, on or off policy"]] },
        { key: "n", label: "trajectories n", from: 10, to: 1e7, value: 10000, log: true, whole: true },
        { ...EPSILON, value: 1 }, { ...DELTA, value: 1e-6 },
        { key: "states", label: "states or features", from: 2, to: 100, value: 12, step: 1, when: is("states", "features") },
        { key: "rarest", label: "least visit probability p", from: 0.02, to: 1, value: 0.3, step: 0.02, when: is("states") },
        { key: "spread", label: "standard deviation of a return τ", from: 0.01, to: 0.5, value: 0.1, step: 0.01, when: is("states") },
        { key: "visits", label: "are the visits public?", value: "no", options: [["no", "no"], ["yes", "yes"]], when: is("states") },
        { key: "chain", label: "states of the chain", steps: [...new Set(models.map((one) => one.states))], value: 40, when: is("chain") },
        { key: "start", label: "episodes start", value: "first", options: [["first", "all in state 1"], ["uniform", "anywhere"]], when: is("chain") },
        { key: "markov", label: "trusted to be Markov?", value: "yes", options: [["yes", "yes"], ["no", "no"]], when: is("chain") },
        { key: "residual", label: "length of a residual r", from: 0.02, to: 2, value: 0.4, step: 0.02, when: is("features") },
        { key: "discount", label: "discount γ", from: 0, to: 0.99, value: 0.9, step: 0.01, when: is("features") },
        { key: "width", label: "width of the range w", from: 0.1, to: 10, value: 1, step: 0.1, when: is("states", "features") },
      ],
      plots: [{
        alt: "Expected error over the number of trajectories, logarithmic, of each mechanism from where it becomes useful; a dot marks the best one here.",
        x: { label: "trajectories n", log: true }, y: { label: "expected error", log: true }, height: 300,
        series: [...names.map((name) => ({ name, colour: looks[name][0], line: looks[name][1] })), { name: "the best one here", colour: "ink", points: true }],
      }],
      compute(v) {
        const z = D.analytic_gaussian_sigma(1, v.epsilon, v.delta), list = known(v), found = D.choose_evaluator(list, v.n, z);
        const y = [1e-6, Math.max(1, v.width || 1)], { best } = found;
        const curves = names.map((name) => {
          const f = list.find((one) => one.mechanism === name);
          return f ? curve(sizes.filter((n) => n / z >= f.least), (n) => D.forecast_error(f, n, z)) : { x: [], y: [] };
        });
        return {
          says: best
            ? `Use ${best.mechanism}. Expected error ${show(found.error)}: noise ${show((best.noise * z) / v.n)}, sampling ${show(best.sampling / Math.sqrt(v.n))}. Here n/z = ${show(found.n_over_z)}; this mechanism needs ${show(best.least)}.`
            : `Nothing is useful: the first mechanism works from n/z = ${show(found.needed)}, that is n = ${show(found.needed * z)}; here n/z = ${show(found.n_over_z)}.`,
          plots: [{ x: [10, 1e7], y, curves: [...curves, point(v.n, best ? within(found.error, y) : null)] }],
        };
      },
    };
  };
})();
