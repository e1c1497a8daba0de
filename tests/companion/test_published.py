"""Numbers typed in from the papers: they are found, and they are the printed ones."""

import numpy as np
import pandas as pd
import pytest

from companion import published
from dprl.membership.metrics import ConfusionCounts

LENGTHS = {"Hopper-v2": [10, 50, 100, 200, 500], "HalfCheetah-v2": [10, 30, 50, 100, 200]}
METRICS = ["accuracy", "precision", "recall", "f1", "mcc"]
MODES = ["individual", "collective"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return published.load("table-5-2")


@pytest.fixture(scope="module")
def wide(table: pd.DataFrame) -> pd.DataFrame:
    return table.pivot(index=["environment", "t_max", "mode"], columns="metric", values="value")


def test_table_5_2_has_every_cell_once(table):
    cells = {
        (environment, t_max, mode, metric)
        for environment, lengths in LENGTHS.items()
        for t_max in lengths
        for mode in MODES
        for metric in METRICS
    }
    keys = list(table[["environment", "t_max", "mode", "metric"]].itertuples(index=False))
    assert len(keys) == 100
    assert set(map(tuple, keys)) == cells
    assert list(table.columns[4:]) == ["value", "plus_minus"]


def test_table_5_2_holds_rates_with_two_digits(table):
    numbers = table[["value", "plus_minus"]].to_numpy()
    assert (numbers >= 0).all()
    assert (numbers <= 1).all()
    assert np.allclose(numbers, numbers.round(2), atol=1e-12)


def test_sentences_of_the_chapter_agree_with_table_5_2(wide):
    """What section 5.7 and the introduction quote from it, read there and not in the table."""
    accuracy = wide["accuracy"]
    best = accuracy["Hopper-v2"].groupby("mode").max()
    assert (best["individual"], best["collective"]) == (0.84, 0.97)
    at_100 = accuracy["Hopper-v2", 100]
    assert at_100["collective"] - at_100["individual"] > 0.13
    # "the best result is obtained at T_max = 200 in the collective mode" (HalfCheetah)
    assert accuracy["HalfCheetah-v2"].idxmax() == (200, "collective")


def test_accuracy_follows_from_precision_and_recall_in_nineteen_rows(wide):
    """A slip of the fingers in one of the three would break the identity of balanced tests."""
    fpr = wide["recall"] * (1 - wide["precision"]) / wide["precision"]
    implied = ConfusionCounts.from_rates(wide["recall"], fpr, 0.5).accuracy
    odd = wide.index[np.abs(implied - wide["accuracy"]) > 0.04]
    assert list(odd) == [("Hopper-v2", 10, "collective")]


@pytest.mark.parametrize("name", ["", "Table 5.2", "../table-5-2", "table-5-2.csv", None])
def test_name_must_have_its_form(name):
    with pytest.raises(ValueError, match="must look like table-5-2"):
        published.load(name)


def test_unknown_table_names_what_there_is():
    with pytest.raises(ValueError, match=r"no published table 'table-9-9'.*table-5-2"):
        published.load("table-9-9")


def test_returns_of_td3_are_the_printed_ones():
    returns = published.load("returns-td3").set_index(["environment", "algorithm"])["value"]
    assert len(returns) == 6
    assert returns["HalfCheetah", "TD3"] == 9636.95
    assert returns["Hopper", "our DDPG"] == 1860.02
    assert (returns.groupby("environment").idxmax().map(lambda one: one[1]) == "TD3").all()
