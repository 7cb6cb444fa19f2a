"""The covariance of two tokens: against random heads and SciPy's integral, and bad input."""

import numpy as np
import pytest
from scipy.integrate import dblquad, solve_ivp
from scipy.special import expit

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.deep_limit import two_token_layer, two_token_limit, two_token_stack

LAYERS = pytest.mark.parametrize(("q", "c", "tau"), [(1.0, 0.2, 1.0), (0.5, -0.6, 0.7), (2.0, 0.9, 2.0)])


def covariance(q, c):
    return q * np.array([[1, c], [c, 1]])


@LAYERS
def test_the_quadrature_is_scipys(q, c, tau):
    """Both moments of the differences, by an integral over two normal numbers."""
    spread = (2 * q * q * (1 - c)) ** 0.5 / tau

    def integrand(y, x, cross):
        e, other = expit(spread * x) - 0.5, expit(spread * (c * x + (1 - c * c) ** 0.5 * y)) - 0.5
        return e * (other if cross else e) * np.exp(-(x * x + y * y) / 2) / (2 * np.pi)

    own, both = (dblquad(integrand, -8, 8, -8, 8, args=(cross,), epsabs=1e-9)[0] for cross in (False, True))
    gap, b2, g = 2 * q * (1 - c), 0.3, 1.5
    size, cosine = two_token_layer(q, c, temperature=tau, share=b2, strength=g)
    compare([size, size * cosine], [q + b2 * g * g * gap * own, q * c + b2 * g * g * gap * both], atol=1e-7)
    size, cosine = two_token_layer(q, c, temperature=tau, share=b2, shaped=False)
    mean = q * (1 + c) / 2
    want = [0.7 * q + b2 * (mean + gap * own), 0.7 * q * c + b2 * (mean + gap * both)]
    compare([size, size * cosine], want, name="ordinary", atol=1e-7)


@pytest.mark.slow
@LAYERS
@pytest.mark.parametrize("shaped", [True, False])
def test_a_layer_is_the_mean_over_the_librarys_random_heads(q, c, tau, shaped, rng):
    """Scores with the lemma's covariance, put through the core as queries of a key that is the identity."""
    root, draws, b2 = np.linalg.cholesky(covariance(q, c)), 200_000, 0.4
    S = root @ rng.standard_normal((draws, 2, 2)) @ root.T
    V = np.broadcast_to(root, S.shape)
    keys = np.broadcast_to(np.eye(2), S.shape)
    if shaped:
        Y, _ = an.shaped_attention(S * 2**0.5, keys, V, temperature=tau, strength=1.3)
    else:
        Y, _ = an.attention(S * 2**0.5 / tau, keys, V)
    want = (1 - b2) * covariance(q, c) + b2 * (Y @ np.swapaxes(Y, 1, 2)).mean(0)
    size, cosine = two_token_layer(q, c, temperature=tau, share=b2, shaped=shaped, strength=1.3)
    compare(covariance(size, cosine), want, atol=0.01 * q)


def test_the_limit_solves_its_equation():
    kappa = 0.4 * (1.2 * (1 - 0.1)) ** 2 / 4
    want = solve_ivp(lambda t, q: kappa * q**3, (0, 1.5), [1.5], rtol=1e-10, atol=1e-12, t_eval=(0.5, 1.5)).y[0]
    got = two_token_limit(np.array([0.5, 1.5]), 1.5, 0.1, share=0.4, strength=1.2)
    compare(got, want, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_token_layer(0.0, 0.1), "size is 0.0; it must be > 0"),
        (lambda: two_token_layer(1.0, 1.1), "cosine is 1.1; it must lie from -1 to 1"),
        (lambda: two_token_layer(1.0, 0.1, share=-0.1), "share is -0.1; it must lie from 0 to 1"),
        (lambda: two_token_layer(1.0, 0.1, temperature=0.0), "temperature is 0.0; it must be > 0"),
        (lambda: two_token_stack(0, 1.0, 0.1), "layers is 0; it must be an integer >= 1"),
        (lambda: two_token_limit(4.0, 1.0, 0.0), "it must be below 4, where q is infinite"),
    ],
)
def test_bad_input_gets_one_sentence(call, message, as_users_call):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
