"""TCN: against a naive network in NumPy, causality, receptive field, dropout, counts."""

import jax
import numpy as np
import pytest

from dprl.membership.attacks import tcn
from dprl.membership.attacks.tcn import TCNSettings

SMALL = TCNSettings(channels=4, kernel=3, dilations=(1, 2), dropout=0.5)
DEEP = TCNSettings(
    channels=6, kernel=2, dilations=(3, 1), convolutions=2, weight_normalisation=False,
    pooling="last",
)  # fmt: skip


logits = jax.jit(tcn.apply, static_argnums=2)


def fresh(settings, channels, seed=0):
    """Parameters away from their start: gains differ from norms, nothing is zero."""
    parameters = tcn.init(np.random.default_rng(seed), channels, settings)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: p + 0.3 * rng.normal(size=p.shape).astype(np.float32), parameters)


def pairs(n, channels, length, seed=1):
    return np.random.default_rng(seed).normal(size=(n, channels, length)).astype(np.float32)


def naive_convolution(x, convolution, dilation):
    """One output, one tap, one channel at a time; x (T, c)."""
    weights = np.asarray(convolution["weights"], dtype=np.float64)
    if "gain" in convolution:
        norm = np.sqrt((weights**2).sum(axis=(0, 1)))
        weights = weights / norm * np.asarray(convolution["gain"])
    k, fan_in, width = weights.shape
    out = np.zeros((len(x), width))
    for t in range(len(x)):
        for h in range(width):
            out[t, h] = convolution["biases"][h]
            for j in range(k):
                past = t - (k - 1 - j) * dilation
                if past >= 0:
                    out[t, h] += sum(weights[j, c, h] * x[past, c] for c in range(fan_in))
    return out


def naive_network(parameters, pair, settings):
    x = pair.T.astype(np.float64)
    for layer, dilation in zip(parameters["layers"], settings.dilations, strict=True):
        z = x
        for convolution in layer["convolutions"]:
            z = np.maximum(naive_convolution(z, convolution, dilation), 0)
        if "shortcut" in layer:
            x = x @ layer["shortcut"]["weights"] + layer["shortcut"]["biases"]
        x = np.maximum(z + x, 0)
    pooled = x.mean(axis=0) if settings.pooling == "mean" else x[-1]
    return (pooled @ parameters["head"]["weights"] + parameters["head"]["biases"])[0]


@pytest.mark.parametrize(("settings", "channels"), [(SMALL, 2), (DEEP, 6)])
def test_logits_are_those_of_the_naive_network(settings, channels):
    parameters, x = fresh(settings, channels), pairs(3, channels, 7)
    by_hand = [naive_network(parameters, pair, settings) for pair in x]
    np.testing.assert_allclose(logits(parameters, x, settings), by_hand, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("settings", "channels"), [(SMALL, 4), (DEEP, 6), (TCNSettings(), 12)])
def test_the_formula_counts_the_parameters(settings, channels):
    parameters = tcn.init(np.random.default_rng(0), channels, settings)
    assert sum(p.size for p in jax.tree.leaves(parameters)) == tcn.parameter_count(
        channels, settings
    )


@pytest.mark.parametrize("settings", [SMALL, DEEP])
def test_a_step_sees_the_receptive_field_and_nothing_later(settings):
    length, at = 16, 12
    parameters, x = fresh(settings, 6), pairs(8, 6, length)

    @jax.jit
    @jax.vmap
    def outputs_and_slope(pair):
        def outputs(pair):
            return tcn.hidden_layers(parameters, pair[None], settings)[-1][0, at]

        return outputs(pair), jax.jacobian(outputs)(pair)

    before, slope = outputs_and_slope(x)  # (8, channels, 6, length)
    # ReLU may block a path for one pair, not for all
    seen = np.flatnonzero(np.abs(slope).max(axis=(0, 1, 2)) > 0)
    assert seen.min() == at - tcn.receptive_field(settings) + 1  # exactly so far back
    assert seen.max() == at  # causal
    changed = x.copy()
    changed[:, :, at + 1 :] += 5
    np.testing.assert_array_equal(before, outputs_and_slope(changed)[0])


def test_receptive_fields():
    assert tcn.receptive_field(TCNSettings()) == 29
    assert tcn.receptive_field(TCNSettings(convolutions=2)) == 57
    assert tcn.receptive_field(TCNSettings(kernel=1)) == 1


def test_the_head_on_the_last_step_forgets_the_start():
    parameters, x = fresh(DEEP, 6), pairs(3, 6, 20)
    changed = x.copy()
    changed[:, :, : 20 - tcn.receptive_field(DEEP)] += 5
    np.testing.assert_allclose(
        logits(parameters, changed, DEEP), logits(parameters, x, DEEP), rtol=1e-5
    )


def test_dropout_acts_in_training_only_and_keeps_the_mean():
    settings = TCNSettings(channels=4, kernel=2, dilations=(1,), dropout=0.5)
    parameters, x = fresh(settings, 4), pairs(3, 4, 5)
    testing = logits(parameters, x, settings)
    np.testing.assert_array_equal(testing, logits(parameters, x, settings))
    kept = tcn.draw_kept(jax.random.key(4), len(x), settings, (4000,))
    np.testing.assert_array_equal(kept, tcn.draw_kept(jax.random.key(4), len(x), settings, (4000,)))
    many = jax.jit(jax.vmap(lambda p, x, kept: tcn.apply(p, x, settings, kept), (None, None, 0)))
    drawn = many(parameters, x, kept)
    assert not np.allclose(drawn[0], drawn[1])
    # at input 0 a layer is linear in its mask, but for a last ReLU that does nothing
    zero = np.zeros_like(x)
    shortcut = logits(parameters, zero, settings)
    np.testing.assert_allclose(many(parameters, zero, kept).mean(axis=0), shortcut, atol=0.1)


def test_dropout_drops_whole_channels():
    settings = TCNSettings(channels=8, kernel=1, dilations=(1,), dropout=0.5)
    parameters, x = fresh(settings, 8), np.zeros((50, 8, 6), dtype=np.float32)
    kept = tcn.draw_kept(jax.random.key(0), len(x), settings)
    hidden = np.asarray(tcn.hidden_layers(parameters, x, settings, kept)[0])
    np.testing.assert_array_equal((hidden > 0).all(axis=1) <= kept[0], True)
    assert ((hidden == 0).all(axis=1) | (hidden > 0).all(axis=1)).all()
    np.testing.assert_array_equal(hidden, np.broadcast_to(hidden[:, :1], hidden.shape))


def test_normalised_weights_start_as_they_were_drawn():
    convolution = tcn.init(np.random.default_rng(0), 4, SMALL)["layers"][0]["convolutions"][0]
    plain = {name: convolution[name] for name in ("weights", "biases")}
    x = pairs(1, 4, 6).swapaxes(1, 2)
    np.testing.assert_allclose(
        tcn.causal_convolution(x, convolution, 2),
        tcn.causal_convolution(x, plain, 2),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"channels": 0}, ValueError, "channels must be at least 1"),
        ({"kernel": 2.5}, TypeError, "kernel must be an integer"),
        ({"dilations": ()}, TypeError, "non-empty tuple"),
        ({"dilations": (1, 0)}, ValueError, "dilation must be at least 1"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\)"),
        ({"pooling": "max"}, ValueError, '"mean" or "last"'),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
    ],
)
def test_bad_settings(change, error, message):
    with pytest.raises(error, match=message):
        TCNSettings(**change)
