// The formulas of the explorers, under the names that they have in the Python package dprl.
//
// Pure functions of numbers: nothing here touches the page. tests/book/test_explorers.py
// evaluates each one in a browser on random settings and compares it with dprl.
(() => {
  "use strict";
  const { exp, expm1, log, log1p, sqrt, abs, min, max, floor, ceil, hypot, PI, SQRT2 } = Math;
  const TINY = 1e-300;
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  // -- special functions ----------------------------------------------------------------------

  // ln Gamma(x), x > 0 (Lanczos, g = 7).
  const LANCZOS = [
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
  ];
  function gammaln(x) {
    if (x < 0.5) return log(PI / Math.sin(PI * x)) - gammaln(1 - x);
    const t = x + 6.5;
    let series = LANCZOS[0];
    for (let i = 1; i < 9; i++) series += LANCZOS[i] / (x - 1 + i);
    return 0.5 * log(2 * PI) + (x - 0.5) * log(t) - t + log(series);
  }

  // A continued fraction b0 + a1/(b1 + a2/(b2 + ...)) by the method of Lentz.
  function fraction(b0, a, b) {
    let f = b0 || TINY, c = f, d = 0;
    for (let i = 1; i < 20000; i++) {
      d = b(i) + a(i) * d || TINY;
      c = b(i) + a(i) / c || TINY;
      d = 1 / d;
      f *= c * d;
      if (abs(c * d - 1) < 1e-16) break;
    }
    return f;
  }

  // P(a, x), the regularised lower incomplete gamma function, a > 0, x >= 0.
  function gammainc(a, x) {
    if (x <= 0) return 0;
    const front = exp(a * log(x) - x - gammaln(a));
    if (x < a + 1) {
      let term = 1 / a, total = term;
      for (let n = 1; n < 20000 && term > 1e-17 * total; n++) total += term *= x / (a + n);
      return front * total;
    }
    return 1 - front / fraction(x + 1 - a, (i) => -i * (i - a), (i) => x + 1 - a + 2 * i);
  }

  // I_x(a, b), the regularised incomplete beta function.
  function betainc(a, b, x) {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - betainc(b, a, 1 - x);
    const front = exp(gammaln(a + b) - gammaln(a) - gammaln(b) + a * log(x) + b * log1p(-x)) / a;
    const coefficient = (i) => {
      const m = floor(i / 2);
      return i % 2
        ? (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
        : (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    };
    return front / fraction(1, coefficient, () => 1);
  }

  // e^{x^2} erfc(x), x >= 0.
  function erfcx(x) {
    if (x < 1) return exp(x * x) * (1 - erf(x));
    return 1 / (sqrt(PI) * fraction(x, (i) => i / 2, () => x));
  }
  function erf(x) {
    if (abs(x) >= 1) return Math.sign(x) * (1 - exp(-x * x) * erfcx(abs(x)));
    let term = x, total = x;
    for (let n = 1; abs(term) > 1e-17 * abs(total); n++) {
      term *= -x * x / n;
      total += term / (2 * n + 1);
    }
    return (2 / sqrt(PI)) * total;
  }
  // The standard normal distribution function.
  function ndtr(x) {
    const tail = x < 0 ? 0.5 * erfcx(-x / SQRT2) * exp(-x * x / 2) : 0;
    return x < 0 ? tail : 0.5 * (1 + erf(x / SQRT2));
  }
  const normal_density = (x) => exp(-x * x / 2) / sqrt(2 * PI);

  // Where a monotone function changes its sign between low and high, by bisection.
  function root(f, low, high) {
    const rising = f(high) > 0;
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) break;
      if ((f(middle) > 0) === rising) high = middle;
      else low = middle;
    }
    return (low + high) / 2;
  }

  // -- dprl.privacy.gaussian ------------------------------------------------------------------

  // Nodes and weights of Gauss and Legendre with 16 points, on [0, 1] in 12 panels.
  const [NODES, WEIGHTS] = (() => {
    const n = 16, panels = 12, nodes = [], weights = [];
    for (let i = 1; i <= n; i++) {
      let x = Math.cos((PI * (i - 0.25)) / (n + 0.5)), slope = 1;
      for (let step = 0; step < 20; step++) {
        let before = 1, here = x;
        for (let k = 2; k <= n; k++) [before, here] = [here, ((2 * k - 1) * x * here - (k - 1) * before) / k];
        slope = (n * (x * here - before)) / (x * x - 1);
        x -= here / slope;
      }
      const weight = 2 / ((1 - x * x) * slope * slope);
      for (let p = 0; p < panels; p++) {
        nodes.push(((x + 1) / 2 + p) / panels);
        weights.push(weight / (2 * panels));
      }
    }
    return [nodes, weights];
  })();

  function gaussian_delta(sensitivity, sigma, epsilon) {
    const s = sensitivity / sigma;
    if (!(s > 0)) return 0;
    const x = epsilon / s - s / 2;
    if (abs(x) > 39) return x < 0 ? 1 : 0;
    const density = normal_density(x), border = max(x, 0);
    if (s < 0.1 * (1 + border)) {
      const length = sqrt(border * border + 90) - border;
      let total = 0;
      NODES.forEach((node, i) => {
        const u = length * node;
        total += WEIGHTS[i] * exp(-u * (x + u / 2)) * -expm1(-s * u);
      });
      return density * length * total;
    }
    const mills = (y) => sqrt(PI / 2) * erfcx(y / SQRT2);
    return (x > 0 ? density * mills(x) : ndtr(-x)) - density * mills(x + s);
  }

  const classical_gaussian_sigma = (sensitivity, epsilon, delta) =>
    (sensitivity * sqrt(2 * log(1.25 / delta))) / epsilon;

  function analytic_gaussian_sigma(sensitivity, epsilon, delta) {
    const gap = (t) => gaussian_delta(1, exp(t), epsilon) - delta;
    return sensitivity * exp(root(gap, -25, 25));
  }

  // -- dprl.privacy.smooth_sensitivity, dprl.private_evaluation.dp_lsw ---------------------------

  const smoothing_constants = (epsilon, delta, dimension) => [
    (5 * sqrt(2 * log(2 / delta))) / epsilon,
    epsilon / (4 * (dimension + log(2 / delta))),
  ];

  const lsw_local_bound = (counts, weights, distance) =>
    sum(counts.map((v, s) => weights[s] / max(v - distance, 1) ** 2));

  // psi, and the k that attains it: 0, or a whole number beside some v_s - 1.
  function lsw_smooth_bound(counts, weights, beta) {
    const ends = new Set([0]);
    counts.forEach((v) => [floor(v - 1), ceil(v - 1)].forEach((k) => ends.add(max(k, 0))));
    let psi = -1, distance = 0;
    ends.forEach((k) => {
      const term = exp(-beta * k) * lsw_local_bound(counts, weights, k);
      if (term > psi) [psi, distance] = [term, k];
    });
    return [psi, distance];
  }

  // Expected visits of the chain: in the first state all start, in the others s/N of them.
  const expected_counts = (states, start, m) =>
    Array.from({ length: states }, (_, s) => (start === "first" ? m : (m * (s + 1)) / states));

  // LSW.noise for the chain with equal weights 1; features as in experiments.chapter_3.
  function lsw_noise({ states, features, start, m, epsilon, delta, f_max }) {
    const pairs = features !== "tabular";
    const [alpha, beta] = smoothing_constants(epsilon, delta, pairs ? states / 2 : states);
    const norm = features === "aggregated" ? Math.SQRT1_2 : 1;
    const weights = Array(states).fill(1);
    const [psi, distance] = lsw_smooth_bound(expected_counts(states, start, m), weights, beta);
    return { alpha, beta, psi, distance, sigma: alpha * f_max * norm * sqrt(psi) };
  }

  // -- dprl.bounds.lsw_utility: Theorem 3.17 where every trajectory visits every state ----------

  // C for equal weights 1/N and orthogonal columns of equal length.
  const theorem_3_17_constant = (dimension, { f_max, epsilon, delta }) =>
    smoothing_constants(epsilon, delta, dimension)[0] * f_max * sqrt(dimension);
  const equation_3_50_corrected = (n, beta) => (n < 1 ? 1 : max(n ** -2, exp(-beta * (n - 1))));
  const two_terms = (m, beta, factor) => 6 / ((m + 1) * (m + 2)) + factor * exp(-beta * m);
  const excess_risk_equal_counts = (m, { constant, beta }) =>
    constant ** 2 * equation_3_50_corrected(m, beta);
  const theorem_3_17_printed = (m, { constant, beta }) =>
    constant ** 2 * two_terms(m, beta, (beta * Math.E / 2) ** 2);
  const theorem_3_17_corrected = (m, { constant, beta }) =>
    constant ** 2 * two_terms(m, beta, exp(beta));
  // The n > 1 with n^-2 = e^{-beta (n - 1)}, for beta < 2.
  const quadratic_regime_onset = (beta) => {
    if (beta >= 2) return 1;
    let high = 2 / beta + 2;
    while (2 * log(high) > beta * (high - 1)) high *= 2;
    return root((n) => beta * (n - 1) - 2 * log(n), 2 / beta, high);
  };

  // -- dprl.privacy.subsampling, dprl.bounds.subsampling_utility, .subsampling_limits -----------

  const LARGEST_CLASSICAL_EPSILON = 2 * log(2.5);

  // The base guarantee (4.9)-(4.10) with delta' = delta/2; NaN where Theorem 4.7 cannot use it.
  function printed_base(n, m, k, epsilon, delta) {
    const slack = delta / 2, q = k / n;
    const x = epsilon / (q * sqrt(-8 * m * log(slack))), half = 0.5 + sqrt(0.25 + x);
    const base = [log1p(x / half), (delta - slack) / (m * q * half)];
    const usable = epsilon <= -4 * log(slack) && base[1] < 1 && base[0] <= LARGEST_CLASSICAL_EPSILON;
    return usable ? base : [NaN, NaN];
  }

  const theorem_4_9_corrected = (n, epsilon, delta) =>
    epsilon <= LARGEST_CLASSICAL_EPSILON ? (2 * log(1.25 / delta)) / (n * epsilon) ** 2 : NaN;
  const section_4_5_avss_squared = (n, k, variance) => ((n - k) / (k * n)) * variance;

  // utility_ratio with the printed calibration.
  function utility_ratio_printed(n, m, k, epsilon, delta, variance) {
    const plain = theorem_4_9_corrected(n, epsilon, delta);
    const noise = theorem_4_9_corrected(k, ...printed_base(n, m, k, epsilon, delta)) / m / plain;
    const sampling = section_4_5_avss_squared(n, k, variance) / m / plain;
    return { total: noise + sampling, noise, sampling };
  }

  // The analytic Gaussian mechanism at one promise: mu, the steepness g and the safe fraction q_0.
  function plain_mechanism(epsilon, delta) {
    const mu = 1 / analytic_gaussian_sigma(1, epsilon, delta);
    const b = epsilon / mu - mu / 2, density = normal_density(b), steepest = normal_density(1);
    if (b <= 1e-12) return { mu, steepness: (2 * density) / (steepest * mu), safe: 1 };
    const between = erf(b / SQRT2);
    const steepness = max((2 * density) / steepest, (4 * between) / density) / mu;
    const gap = (z) => ndtr(z - b) - ndtr(-b) - density * z;
    const end = gap(2 * b) <= 0 ? 2 * b : root(gap, 2 * b, 2 / density);
    return { mu, steepness, safe: mu / (mu + end) };
  }

  // noise_lower_bound_sharper, and the sampling error, in units of the analytic mechanism's error:
  // what no accounting can go below.
  function utility_ratio_least(n, m, k, { mu, steepness: g, safe }, variance) {
    const w = (n / k - 1) / m, inside = g * g - 4 * (g + 1) * w;
    const larger = (g + 2 + sqrt(max(inside, 0))) / (2 * (g + 1));
    const noise = k >= safe * n ? 1 : inside >= 0 ? min(larger, 1) ** 2 : 0;
    const sampling = (section_4_5_avss_squared(n, k, variance) / m) * (n * mu) ** 2;
    return { total: noise + sampling, noise, sampling };
  }

  // -- dprl.membership.gaussian_game ------------------------------------------------------------

  const chi2_cdf = (x, d) => gammainc(d / 2, x / 2);
  function chi2_ppf(p, d) {
    if (p <= 0) return 0;
    if (p >= 1) return Infinity;
    let high = d;
    while (chi2_cdf(high, d) < p) high *= 2;
    let low = min(d, high) / 2;
    while (chi2_cdf(low, d) > p) low /= 2;
    return root((x) => chi2_cdf(x, d) - p, low, high);
  }

  function game_variance({ members, spread, noise }, kind) {
    const weight = kind === "member" ? -1 : 1, away = kind === "other" ? 2 * spread ** 2 : 0;
    return 1 + weight / members + noise ** 2 + away;
  }
  const game_ratio = (game, positives, negatives) =>
    game_variance(game, negatives) / game_variance(game, positives);
  const game_tpr = (game, fpr, positives, negatives) =>
    chi2_cdf(game_ratio(game, positives, negatives) * chi2_ppf(fpr, game.dimensions), game.dimensions);
  function game_auc(game, positives, negatives) {
    const r = game_ratio(game, positives, negatives), half = game.dimensions / 2;
    return betainc(half, half, r / (1 + r));
  }

  // -- dprl.bounds.gpope_privacy ----------------------------------------------------------------

  const theorem_1_sigma = (epsilon, delta, records, steps) =>
    (2 * sqrt(steps * log(1 / delta))) / (records * epsilon);

  // -- the comb: Laplace noise by inversion, every operation rounded to a few bits -----------------

  // The nearest number with so many significant bits, ties to even.
  function rounded(x, bits) {
    if (x === 0) return 0;
    let exponent = floor(Math.log2(abs(x)));
    if (2 ** exponent > abs(x)) exponent -= 1;
    if (2 ** (exponent + 1) <= abs(x)) exponent += 1;
    const unit = 2 ** (exponent + 1 - bits), y = x / unit, low = floor(y);
    const up = y - low > 0.5 || (y - low === 0.5 && low % 2 !== 0);
    return (low + (up ? 1 : 0)) * unit;
  }

  // The next larger number with so many significant bits; below 2^-14 numbers are evenly spaced.
  function next(y, bits) {
    const unit = (x) => 2 ** (max(floor(Math.log2(abs(x))), -14) + 1 - bits);
    if (abs(y) < 2 ** -14) return y + 2 ** (-13 - bits);
    const spacing = unit(y);
    return y < 0 && rounded(-y, 1) === -y ? y + spacing / 2 : y + spacing;
  }

  // How many of the uniform numbers i/2^bits, 0 < i < 2^bits, lead to each answer.
  function rounded_law(v, scale, bits) {
    const found = new Map(), all = 2 ** bits, fl = (x) => rounded(x, bits);
    for (let i = 1; i < all; i++) {
      const u = i / all, low = u < 0.5;
      const z = fl(scale * fl(log(low ? fl(u + u) : fl(fl(2 - u) - u))));
      const y = fl(low ? v + z : v - z);
      found.set(y, (found.get(y) || 0) + 1);
    }
    return found;
  }
  // The share of the answers of p that q never gives.
  const impossible_share = (p, q, bits) =>
    sum([...p].map(([y, n]) => (q.has(y) ? 0 : n))) / (2 ** bits - 1);
  // The least delta at epsilon of two such laws, in one order.
  const law_delta = (p, q, epsilon, bits) =>
    sum([...p].map(([y, n]) => max(0, n - exp(epsilon) * (q.get(y) || 0)))) / (2 ** bits - 1);
  const laplace_delta = (sensitivity, scale, epsilon) => max(0, -expm1((epsilon - sensitivity / scale) / 2));

  // -- dprl.private_evaluation.choice -----------------------------------------------------------

  const forecast = (mechanism, noise, sampling, valid, width) => ({
    mechanism, noise, sampling, least: max(valid, (10 * noise) / width),
  });

  // States: visit probabilities p, spreads tau; the shares of the rounds are the package's.
  function forecasts_states({ p, tau, width, visits_known }, { first, last }) {
    const n = p.length, least = min(...p), inverse = sum(p.map((x) => 1 / x)), C = 4 / sqrt(3);
    const b = sqrt(sum(p.map((x, s) => tau[s] ** 2 / x)) / n);
    const free = 4 * sqrt((sum(tau.map((x) => x * x)) * inverse) / (last * n));
    const equal = width * sqrt(sum(p.map((x) => x ** -2)));
    const found = [
      forecast("counts and sums, equal noise", equal, b, (C * sqrt(n)) / least, width),
      forecast("RC without structure", free, b, (2 * sqrt(n / first)) / least, width),
    ];
    if (!visits_known) return found;
    const by_visits = (width * inverse) / sqrt(n);
    return [forecast("counts and sums, noise by visits", by_visits, b, C * sqrt(inverse / least), width), ...found];
  }

  // Features: least-squares temporal differences; shares as those of dprl.private_evaluation.LSTDRounds.
  function forecasts_features({ dimension: d, residual: r, discount, width, matrix }, shares) {
    const noise = 4 * r * sqrt(d / shares.residual);
    const valid = (4 * (matrix ?? d) * sqrt(d / shares.matrix)) / (1 - discount);
    return [forecast("private LSTD", noise, r, max(valid, shares.fewest), width)];
  }

  const forecast_error = (f, n, z) => hypot((f.noise * z) / n, f.sampling / sqrt(n));

  function choose_evaluator(known, n, z) {
    const able = known.filter((f) => n / z >= f.least);
    const best = able.reduce((a, f) => (a && forecast_error(a, n, z) <= forecast_error(f, n, z) ? a : f), null);
    return {
      best,
      error: best ? forecast_error(best, n, z) : Infinity,
      n_over_z: n / z,
      needed: min(...known.map((f) => f.least)),
    };
  }

  Object.assign((globalThis.dprl = globalThis.dprl || {}), {
    gammaln, gammainc, betainc, erfcx, erf, ndtr, normal_density, root,
    gaussian_delta, classical_gaussian_sigma, analytic_gaussian_sigma,
    smoothing_constants, lsw_local_bound, lsw_smooth_bound, expected_counts, lsw_noise,
    theorem_3_17_constant, equation_3_50_corrected, excess_risk_equal_counts,
    theorem_3_17_printed, theorem_3_17_corrected, quadratic_regime_onset,
    printed_base, theorem_4_9_corrected, section_4_5_avss_squared, utility_ratio_printed,
    plain_mechanism, utility_ratio_least,
    chi2_cdf, chi2_ppf, game_variance, game_tpr, game_auc, theorem_1_sigma,
    rounded, next, rounded_law, impossible_share, law_delta, laplace_delta,
    forecasts_states, forecasts_features, forecast_error, choose_evaluator,
  });
})();
