"""The page on caches: absorbed latent attention, its counts, and what rounded keys and values do to an output."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import latent, shapes
from attnmath.caches import LatentCache
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@pytest.mark.claim("thm-latent-absorbed")
@settings(max_examples=30)
@given(seed=seeds, heads=st.integers(1, 4), c=st.integers(1, 9), r=st.sampled_from([0, 2, 6]), scale=st.floats(0.1, 2))
def test_both_forms_are_one_function(seed, heads, c, r, scale):
    rng = np.random.default_rng(seed)
    described = latent.latent_shapes(12, heads, 3, 2, latent=c, rotary=r)
    params = shapes.random_tree(described, rng, 0.5)
    Q, K = rng.standard_normal((2, 4, 12)), rng.standard_normal((2, 7, 12))
    turn = an.rotary if r else None
    dO = rng.standard_normal((2, 4, 12))
    results = []
    for absorbed in (False, True):
        O, vjp = an.latent_attention(Q, K, K, params, heads, turn=turn, absorbed=absorbed, scale=scale)
        results.append((O, vjp(dO)))
    compare(results[1], results[0], atol=1e-10)
    keys = []
    many = an.grouped(an.attention_fused)
    for absorbed in (False, True):

        def core(Q, K, V, **options):
            keys.append((K.shape[-3:], V.shape[-3:]))
            return many(Q, K, V, **options)

        core.shares_heads = True
        an.latent_attention(Q, K, K, params, heads, turn=turn, absorbed=absorbed, attend=core)
    assert keys[-2:] == [((heads, 7, 3 + r), (heads, 7, 2)), ((1, 7, c + r), (1, 7, c))]


def total_variation(S, other):
    P, R = (an.softmax(X)[0] for X in (S, other))
    return abs(P - R).sum(-1) / 2


@pytest.mark.claim("lem-moved-scores")
@given(seed=seeds, m=st.integers(1, 12), sigma=st.floats(0, 5))
def test_weights_move_by_no_more_than_the_tangent(seed, m, sigma):
    rng = np.random.default_rng(seed)
    S = 3 * rng.standard_normal((20, m))
    for moved in (S + sigma * rng.uniform(-1, 1, S.shape), S + sigma * rng.choice([-1, 1], S.shape)):
        assert (total_variation(S, moved) <= np.tanh(sigma / 2) + 1e-12).all()


@pytest.mark.claim("lem-moved-scores")
@pytest.mark.parametrize("sigma", [0.01, 0.3, 2.0])
def test_the_bound_is_attained_by_two_keys(sigma):
    S = np.array([-sigma, sigma])
    compare(total_variation(S, -S), np.tanh(sigma))
    compare(total_variation(S / 2, -S / 2), np.tanh(sigma / 2))


@pytest.mark.claim("thm-quantised-attention", "lem-moved-scores")
@settings(max_examples=60)
@given(seed=seeds, bits=st.integers(1, 8), m=st.integers(1, 9))
def test_an_output_moves_by_no_more_than_the_bound(seed, bits, m):
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((5, 6)), rng.standard_normal((m, 6)), rng.standard_normal((m, 3))
    K[:, seed % 6] *= 8  # a channel with large entries, as real keys have
    keys, values = an.quantised(K, bits, axis=-2), an.quantised(V, bits)
    near = an.dequantised(*keys), an.dequantised(*values)
    assert (abs(near[0] - K) <= keys[2] / 2 + 1e-12).all() and (abs(near[1] - V) <= values[2] / 2 + 1e-12).all()
    sigma = (abs(Q) * keys[2] / 2).sum(-1) / 6**0.5
    assert (abs(Q @ (near[0] - K).T) / 6**0.5 <= sigma[:, None] + 1e-12).all()
    O, P = an.attention(Q, K, V)[0], an.softmax(Q @ near[0].T / 6**0.5)[0]
    off = abs(an.attention(Q, *near)[0] - O)
    bound = np.tanh(sigma / 2)[:, None] * np.ptp(V, 0) + P @ (values[2] / 2)
    assert (off <= bound + 1e-12).all()


@pytest.mark.claim("thm-quantised-attention")
def test_the_bound_is_attained(rng):
    """Two keys, one channel; the scores' errors have opposite signs and the values one sign."""
    q, half, eta = 1.7, 0.2, 0.05
    K, V = np.array([[-half / 2], [half / 2]]), np.array([[0.0], [1.0]])
    moved = np.array([[half / 2], [-half / 2]])
    O, far = an.attention(np.array([[q]]), K, V)[0], an.attention(np.array([[q]]), moved, V - eta)[0]
    compare(abs(far - O), [[np.tanh(q * half / 2) + eta]])


@pytest.mark.claim("prop-latent-count")
@pytest.mark.parametrize("absorbed", [False, True])
def test_what_is_kept_and_multiplied_is_counted_at_the_core(absorbed):
    """The core is asked how wide its keys and values are: so many products for each kept token and head of queries."""
    h, k, v, c, r = 3, 4, 5, 7, 2
    params = shapes.random_tree(latent.latent_shapes(12, h, k, v, latent=c, rotary=r), np.random.default_rng(0), 0.5)
    X, seen = np.random.default_rng(1).standard_normal((6, 12)), []
    many = an.grouped(an.attention_fused)

    def core(Q, K, V, **options):
        seen.append((Q.shape[-3], K.shape[-1] + V.shape[-1], K.shape[-3] * (K.shape[-1] + V.shape[-1])))
        return many(Q, K, V, **options)

    core.shares_heads = True
    an.latent_attention(X, X, X, params, h, turn=an.rotary, absorbed=absorbed, attend=core)
    ((heads, products, _),) = seen
    assert heads * products == (h * (2 * c + r) if absorbed else h * (k + r + v))
    cache = LatentCache()
    attend = partial(an.latent_attention, attend=an.cached(an.attention_fused, cache), turn=an.rotary, absorbed=True)
    for x in X:
        attend(x[None], x[None], x[None], params, h)
    assert cache.kept[0].shape == (1, len(X), c + r) and np.shares_memory(*cache.kept), "values are a part of the keys"


@pytest.mark.claim("prop-latent-count")
def test_the_numbers_of_deepseek_v3():
    h, k, r, v, c = 128, 128, 64, 128, 512
    assert (h * (k + v), 8 * (k + v), c + r) == (32768, 2048, 576)
    described = latent.latent_shapes(7168, h, k, v, latent=c, rotary=r, query=1536)
    assert described["down"]["weight"] == (7168, 576) and described["up"]["weight"] == (512, 32768)
    assert h * (2 * c + r) / (h * (k + r + v)) == 3.4 and (2 * c + r) / (k + v) == 4.25
