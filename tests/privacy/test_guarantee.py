"""A guarantee says epsilon, delta and the relation, or does not exist."""

import dataclasses

import pytest

from dprl.privacy import Guarantee


def test_a_guarantee_is_a_value():
    a, b = Guarantee(0.1, 1e-5, "replace one trajectory"), Guarantee(0.1, 1e-5, "replace one row")
    assert a == Guarantee(0.1, 1e-5, "replace one trajectory")
    assert a != b  # the relation is part of the promise
    assert hash(a) == hash(Guarantee(0.1, 1e-5, "replace one trajectory"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.epsilon = 1.0


def test_a_guarantee_reads_as_a_sentence():
    text = str(Guarantee(0.5, 0, "replace one row"))
    assert text == "(0.5, 0)-differentially private; neighbours: replace one row"


def test_pure_privacy_has_delta_zero():
    assert Guarantee(1, 0.0, "add one row").delta == 0
