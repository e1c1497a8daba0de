"""Sub-sampling on small populations: sums over sequences and sets of positions, and identities."""

import inspect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl import privacy
from dprl.privacy import OutputPerturbation, Population, averaging_query, populations
from dprl.privacy import population_utility as pop

VISITS = Population([[0.0, 0.0], [1.0, 0.2], [1.0, 1.0]], [0.5, 0.2, 0.3])


def ratio(x):
    """Average first-visit return: a ratio with a denominator that depends on the data."""
    visits = x[..., 0].sum(axis=1)
    return x[..., 1].sum(axis=1) / np.maximum(visits, 1)


def several(x):
    """Maximum, median and variance of the last entry: three numbers."""
    v = x[..., -1] if x.ndim == 3 else x
    return np.stack([v.max(axis=1), np.median(v, axis=1), v.var(axis=1)], axis=-1)


def averages(x):
    """An average of two functions of the record."""
    v = x[..., -1] if x.ndim == 3 else x
    return averaging_query(lambda y: np.stack([y, y**2], axis=-1))(v)


def noisy_where_rare(x):
    """A variance that depends on the sub-sample, like that of DP-LSW."""
    v = x[..., 0] if x.ndim == 3 else x
    return 0.3 / (1 + np.abs(v).sum(axis=1)) ** 2


QUERIES = {"ratio": ratio, "several": several, "averages": averages}


# -- the definitions by brute force: sequences of records, sets of positions -------------


def answer(query, records):
    return np.atleast_1d(np.asarray(query(np.asarray(records)[None]), dtype=float)[0])


def sequences(population, n):
    for index in itertools.product(range(population.size), repeat=n):
        yield population.records[list(index)], math.prod(population.probabilities[list(index)])


def subsets(x, k):
    return [x[list(s)] for s in itertools.combinations(range(len(x)), k)]


def naive_moved(query, x, k, p):
    here = answer(query, x)
    return np.mean([(abs(here - answer(query, y)) ** p).sum() for y in subsets(x, k)])


def naive_bias(query, x, k, p):
    mean = np.mean([answer(query, y) for y in subsets(x, k)], axis=0)
    return (abs(answer(query, x) - mean) ** p).sum()


def naive_sensitivity(query, population, n, p):
    largest = 0.0
    for x, _ in sequences(population, n):
        for i, record in itertools.product(range(n), population.records):
            y = x.copy()
            y[i] = record
            largest = max(largest, (abs(answer(query, x) - answer(query, y)) ** p).sum())
    return largest ** (1 / p)


def naive_utility(query, variance, population, n, m, k):
    """Every choice of m sub-samples, and every sign of a two-point noise."""
    total = 0.0
    for x, weight in sequences(population, n):
        here = answer(query, x)
        d = len(here)
        outcomes = []
        for y in subsets(x, k):
            size = math.sqrt(answer(variance, y)[0])
            for signs in itertools.product((-1, 1), repeat=d):
                outcomes.append(answer(query, y) + size * np.array(signs))
        squares = [
            ((here - np.mean(draws, axis=0)) ** 2).sum()
            for draws in itertools.product(outcomes, repeat=m)
        ]
        total += weight * np.mean(squares)
    return total


@pytest.fixture(params=QUERIES)
def query(request):
    return QUERIES[request.param]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 1), (4, 2), (4, 3), (4, 4)])
def test_sensitivities_and_bias_against_sums_over_sequences(query, n, k, p):
    moved, bias, weights = zip(
        *(
            (naive_moved(query, x, k, p), naive_bias(query, x, k, p), w)
            for x, w in sequences(VISITS, n)
        ),
        strict=True,
    )
    expected = {
        pop.global_subsampling_sensitivity: max(moved),
        pop.average_subsampling_sensitivity: np.dot(moved, weights),
        pop.average_subsampling_bias: np.dot(bias, weights),
    }
    for function, power in expected.items():
        value = function(query, VISITS, n, k, p)
        np.testing.assert_allclose(value**p, power, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_global_sensitivity_against_all_replacements(query, n, p):
    expected = naive_sensitivity(query, VISITS, n, p)
    for ordered in (False, True):
        value = pop.global_sensitivity(query, VISITS, n, p, ordered=ordered)
        assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_global_sensitivity_of_a_query_that_depends_on_the_order(n):
    w = np.array([3.0, -1.0, 0.5])[:n]
    universe = Population([0.0, 1.0, 4.0], [0.5, 0.5, 0.0])
    value = pop.global_sensitivity(lambda x: x @ w, universe, n, ordered=True)
    assert value == pytest.approx(4 * abs(w).max())
    assert value == pytest.approx(naive_sensitivity(lambda x: x @ w, universe, n, 2))


@pytest.mark.parametrize(("m", "k"), [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("query", [ratio, averages])
def test_utility_against_every_outcome(query, m, k):
    population = Population([[0.0, 0.3], [1.0, 1.0]], [0.4, 0.6])
    base = OutputPerturbation(query, noisy_where_rare)
    value = pop.subsample_and_average_utility(base, population, 3, m, k)
    expected = naive_utility(query, noisy_where_rare, population, 3, m, k)
    assert value == pytest.approx(expected, rel=1e-12)


def test_utility_of_one_mechanism_against_every_outcome():
    base = OutputPerturbation(averages, noisy_where_rare)
    expected = naive_utility(averages, noisy_where_rare, VISITS, 2, 1, 2)
    assert pop.average_utility(base, VISITS, 2) == pytest.approx(expected, rel=1e-12)


def test_mean_of_the_mechanism_against_every_subset():
    x = VISITS.data_sets(4)
    value = pop.subsample_and_average_mean(several, VISITS, 4, 2)
    for row, records in zip(value, x.records, strict=True):
        mean = np.mean([answer(several, y) for y in subsets(records, 2)], axis=0)
        np.testing.assert_allclose(row, mean, rtol=1e-12)


# -- identities --------------------------------------------------------------------------


@st.composite
def settings_of_an_average(draw):
    r, d = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    table = np.array(draw(st.lists(st.integers(-9, 9), min_size=r * d, max_size=r * d)), float)
    p = np.array(draw(st.lists(st.integers(1, 9), min_size=r, max_size=r)), float)
    n = draw(st.integers(1, 9))
    return table.reshape(r, d), p / p.sum(), n, draw(st.integers(1, n))


@given(settings_of_an_average())
def test_averages(setting):
    """The closed forms of the averaging family: (4.1), (4.2), (4.3) and the sensitivity."""
    a, p, n, k = setting
    population = Population(np.arange(len(p)), p)
    A = averaging_query(lambda x: a[x.astype(int)])
    V = p @ (a**2).sum(axis=1) - ((p @ a) ** 2).sum()
    avss = pop.average_subsampling_sensitivity(A, population, n, k)
    np.testing.assert_allclose(avss**2, (1 / k - 1 / n) * V, rtol=1e-9, atol=1e-11)
    assert pop.average_subsampling_bias(A, population, n, k) <= 1e-12 * (1 + abs(a).max())
    one = pop.global_sensitivity(A, population, 1)
    assert pop.global_sensitivity(A, population, n) == pytest.approx(one / n, rel=1e-12)
    diameter = max(np.linalg.norm(u - v) for u in a for v in a)
    assert one == pytest.approx(diameter, rel=1e-12)


@given(st.integers(1, 12), st.data())
def test_worst_data_set_of_a_scalar_average(n, data):
    """Half of the records at each end: GSS^2 = (1/k - 1/n) n/(n-1) n0 n1/n^2 diameter^2."""
    k = data.draw(st.integers(1, n))
    universe = Population([0.0, 0.7, 3.0], [0.2, 0.3, 0.5])
    value = pop.global_subsampling_sensitivity(averaging_query(), universe, n, k)
    spread = (n // 2) * (n - n // 2) / (n * max(n - 1, 1)) * 9
    np.testing.assert_allclose(value**2, (1 / k - 1 / n) * spread, rtol=1e-9, atol=1e-13)


@given(st.integers(1, 7), st.data(), st.sampled_from(sorted(QUERIES)), st.sampled_from([1.0, 2.0]))
def test_bias_average_and_worst_case_are_in_order(n, data, name, p):
    """Jensen's inequality, and a mean is at most a maximum."""
    k = data.draw(st.integers(1, n))
    given = (QUERIES[name], VISITS, n, k, p)
    bias = pop.average_subsampling_bias(*given)
    average = pop.average_subsampling_sensitivity(*given)
    worst = pop.global_subsampling_sensitivity(*given)
    assert bias <= average * (1 + 1e-12) + 1e-15
    assert average <= worst * (1 + 1e-12)


@given(
    st.integers(1, 7),
    st.integers(1, 50),
    st.data(),
    st.sampled_from(sorted(QUERIES)),
    st.booleans(),
)
def test_theorem_4_14(n, m, data, name, dependent):
    k = data.draw(st.integers(1, n))
    query = QUERIES[name]
    base = OutputPerturbation(
        query, noisy_where_rare if dependent else lambda x: np.full(len(x), 0.25)
    )
    right = (
        pop.average_utility(base, VISITS, k) / m
        + pop.average_subsampling_sensitivity(query, VISITS, n, k) ** 2 / m
        + (m - 1) / m * pop.average_subsampling_bias(query, VISITS, n, k) ** 2
    )
    left = pop.subsample_and_average_utility(base, VISITS, n, m, k)
    assert left == pytest.approx(right, rel=1e-10)


@given(st.integers(1, 8), st.sampled_from(sorted(QUERIES)))
def test_whole_data_set_as_sub_sample(n, name):
    """k = n: no effect of sub-sampling, and the noise alone is averaged."""
    query, base = QUERIES[name], OutputPerturbation(QUERIES[name], noisy_where_rare)
    assert pop.global_subsampling_sensitivity(query, VISITS, n, n) == 0
    assert pop.average_subsampling_sensitivity(query, VISITS, n, n) == 0
    assert pop.average_subsampling_bias(query, VISITS, n, n) == 0
    terms = pop.subsample_and_average_terms(base, VISITS, n, n)
    assert (terms.sampling, terms.squared_bias) == (0, 0)
    assert terms.noise == pytest.approx(pop.average_utility(base, VISITS, n), rel=1e-12)


def test_unbiased_variance_has_no_sub_sampling_bias():
    """A query need not be an average for that: this one is an average over pairs of records."""
    universe = Population([0.0, 1.0, 3.0], [0.2, 0.3, 0.5])

    def unbiased(x):
        return x.var(axis=1, ddof=1)

    for k in range(2, 7):
        assert pop.average_subsampling_bias(unbiased, universe, 6, k) < 1e-14
    assert pop.average_subsampling_bias(lambda x: x.var(axis=1), universe, 6, 3) > 0.1


def test_variance_may_differ_between_coordinates():
    def one(x):
        return np.full(len(x), 0.25)

    def two(x):
        return np.tile([0.4, 0.1], (len(x), 1))

    same = OutputPerturbation(averages, one), OutputPerturbation(averages, two)
    assert pop.average_utility(same[0], VISITS, 3) == pytest.approx(0.5)
    assert pop.average_utility(same[1], VISITS, 3) == pytest.approx(0.5)


@given(st.integers(1, 6), st.integers(1, 12))
def test_data_sets(r, n):
    p = np.arange(1, r + 1) / (r * (r + 1) / 2)
    population = Population(np.arange(r), p)
    x = population.data_sets(n)
    assert len(x.counts) == population.n_data_sets(n) == len(np.unique(x.counts, axis=0))
    assert (x.counts.sum(axis=1) == n).all()
    assert x.probabilities.sum() == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(x.probabilities @ x.counts / n, p, rtol=1e-12)
    for counts, records in zip(x.counts, x.records, strict=True):
        assert np.bincount(records.astype(int), minlength=r).tolist() == counts.tolist()


def test_large_data_sets_keep_their_precision():
    """800 records: the hypergeometric variance of a sub-sample's mean."""
    coin = Population([0, 1], [0.3, 0.7])
    avss = pop.average_subsampling_sensitivity(averaging_query(), coin, 800, 390)
    assert avss**2 == pytest.approx((1 / 390 - 1 / 800) * 0.21, rel=1e-9)


def test_chunks_do_not_matter(monkeypatch):
    given = (OutputPerturbation(several, noisy_where_rare), VISITS, 6, 3)
    whole = pop.subsample_and_average_terms(*given)
    worst = pop.global_subsampling_sensitivity(several, VISITS, 6, 3)
    monkeypatch.setattr(populations, "_CHUNK", 25)
    np.testing.assert_allclose(pop.subsample_and_average_terms(*given), whole, rtol=1e-12)
    assert pop.global_subsampling_sensitivity(several, VISITS, 6, 3) == pytest.approx(worst)


def test_impossible_records_count_for_the_worst_case_only():
    coin, wide = Population([0, 1], [0.5, 0.5]), Population([0, 1, 9], [0.5, 0.5, 0])
    A = averaging_query()
    for function in (pop.average_subsampling_sensitivity, pop.average_subsampling_bias):
        assert function(ratio_free, wide, 4, 2) == pytest.approx(function(ratio_free, coin, 4, 2))
    assert pop.global_sensitivity(A, wide, 4) == 9 / 4
    assert pop.global_subsampling_sensitivity(A, wide, 4, 2) > 2


def ratio_free(x):
    return x.max(axis=1)


def test_a_population_is_immutable_and_owns_its_numbers():
    records = np.array([0.0, 1.0])
    population = Population(records, [0.5, 0.5])
    records[0] = 7
    assert population.records.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        population.probabilities[0] = 1
    with pytest.raises(AttributeError):
        population.records = records


def test_the_package_offers_the_module():
    public = [
        name
        for name, value in vars(pop).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == pop.__name__
    ]
    assert set(public) <= set(dir(privacy))


# -- bad input ---------------------------------------------------------------------------

COIN = Population([0, 1], [0.5, 0.5])
MEAN = averaging_query()
BASE = OutputPerturbation(MEAN, lambda x: np.ones(len(x)))
GSS, ASB = pop.global_subsampling_sensitivity, pop.average_subsampling_bias
MANY = Population(np.arange(40), np.full(40, 1 / 40))
BAD = {
    "no records": (lambda: Population([], []), "records must have shape"),
    "records a scalar": (lambda: Population(1.0, [1.0]), "records must have shape"),
    "records not finite": (lambda: Population([0, np.nan], [0.5, 0.5]), "records holds NaN"),
    "probabilities too few": (lambda: Population([0, 1], [1.0]), "probabilities must have 2"),
    "probabilities sum": (lambda: Population([0, 1], [0.5, 0.6]), "sum to one"),
    "n not whole": (lambda: GSS(MEAN, COIN, 2.0, 1), "n must be an integer"),
    "n zero": (lambda: COIN.data_sets(0), "n must be at least 1"),
    "n too large": (lambda: COIN.data_sets(10**9), "n must be at most 1000"),
    "n too large, counted": (lambda: COIN.n_data_sets(10**9), "n must be at most 1000"),
    "k zero": (lambda: GSS(MEAN, COIN, 2, 0), "k must be at least 1"),
    "k above n": (lambda: GSS(MEAN, COIN, 2, 3), "at most n = 2 records, got k = 3"),
    "p below one": (lambda: ASB(MEAN, COIN, 2, 1, p=0.5), "p must be at least 1"),
    "p infinite": (lambda: ASB(MEAN, COIN, 2, 1, p=np.inf), "p must be finite"),
    "p of the sensitivity": (
        lambda: pop.global_sensitivity(MEAN, COIN, 2, p=0),
        "p must be at least 1",
    ),
    "population": (lambda: GSS(MEAN, [0, 1], 2, 1), "population must be a Population"),
    "population of the sensitivity": (
        lambda: pop.global_sensitivity(MEAN, None, 2),
        "population must be a Population",
    ),
    "query no function": (lambda: GSS(3, COIN, 2, 1), "query must be callable"),
    "a no function": (lambda: averaging_query(3), "a must be callable"),
    "a not per record": (
        lambda: GSS(averaging_query(lambda x: x.sum(axis=1)), COIN, 2, 1),
        "a must return one value per record",
    ),
    "no family": (lambda: GSS(lambda x: x @ [1.0, 2.0], COIN, 2, 1), "must be a family"),
    "depends on the order": (
        lambda: GSS(lambda x: x[:, 0], COIN, 3, 2),
        "depends on the order of the 2 records",
    ),
    "depends on the order, sensitivity": (
        lambda: pop.global_sensitivity(lambda x: x @ [1.0, 2.0], COIN, 2),
        "depends on the order of the 2 records",
    ),
    "answer not per data set": (lambda: GSS(lambda x: x.mean(), COIN, 2, 1), "must return shape"),
    "answer empty": (lambda: GSS(lambda x: x[:, :0], COIN, 2, 1), "must return shape"),
    "answer not finite": (
        lambda: GSS(lambda x: x.mean(axis=1) * np.inf, Population([1], [1]), 2, 1),
        "holds NaN or infinite",
    ),
    "answer changes length": (
        lambda: GSS(lambda x: np.sort(x, axis=1), COIN, 3, 2),
        "returns 3 numbers for n records and 2 for k",
    ),
    "answer changes length, bias": (
        lambda: ASB(lambda x: np.sort(x, axis=1), COIN, 3, 2),
        "returns 3 numbers for n records and 2 for k",
    ),
    "too many data sets": (lambda: MANY.data_sets(30), r"about 10\^20 data sets of 30 of 40"),
    "too many pairs": (lambda: GSS(MEAN, MANY, 4, 3), "pairs of a data set"),
    "too many pairs, exact": (lambda: GSS(MEAN, MANY, 4, 3), "1,416,746,800 pairs"),
    "too many sequences": (
        lambda: pop.global_sensitivity(MEAN, COIN, 900, ordered=True),
        r"about 10\^271 sequences of 900 of 2",
    ),
    "too many replacements": (
        lambda: pop.global_sensitivity(MEAN, MANY, 6),
        "1,086,008 data sets of 5 of 40",
    ),
    "mechanism": (lambda: pop.average_utility(MEAN, COIN, 2), "must be a OutputPerturbation"),
    "mechanism, terms": (
        lambda: pop.subsample_and_average_utility(MEAN, COIN, 2, 1, 1),
        "must be a OutputPerturbation",
    ),
    "variance no function": (lambda: OutputPerturbation(MEAN, 1.0), "variance must be callable"),
    "variance negative": (
        lambda: pop.average_utility(OutputPerturbation(MEAN, lambda x: -np.ones(len(x))), COIN, 2),
        "variance must not be negative",
    ),
    "variance of the wrong shape": (
        lambda: pop.average_utility(
            OutputPerturbation(MEAN, lambda x: np.ones((len(x), 3))), COIN, 2
        ),
        "variance must have one column, or 1 like the query, got 3",
    ),
    "m zero": (
        lambda: pop.subsample_and_average_utility(BASE, COIN, 2, 0, 1),
        "must be at least 1",
    ),
    "m not whole": (
        lambda: pop.subsample_and_average_utility(BASE, COIN, 2, [1, 1.5], 1),
        "must be a whole number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_a_failing_query_says_why():
    def fails(x):
        raise KeyError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        pop.global_sensitivity(fails, COIN, 2)


@pytest.mark.parametrize("p", [2.0, 108.0, 1_000.0])
def test_a_norm_of_large_order_does_not_vanish(p):
    """Powers of 1/n underflow; no sensitivity would be no noise."""
    coin = Population([0, 1], [0.5, 0.5])
    assert pop.global_sensitivity(averaging_query(), coin, n=1_000, p=p) == pytest.approx(1e-3)
