"""What a masked loss estimates, which conditionals have a joint, and why some tokens are left unchanged."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import masking, shapes
from attnmath.check import check_vjp, compare
from attnmath.masked_shapes import masked_head_shapes, masked_language_model_shapes

seeds = st.integers(0, 2**32 - 1)


def joint(rng, sizes):
    return rng.dirichlet(np.ones(np.prod(sizes))).reshape(sizes)


def given_rest(P, blanks):
    """p(x_i | the tokens that are no blanks) at every text, for one i of the blanks at a time."""
    found = {}
    for i in blanks:
        others = tuple(k for k in blanks if k != i)
        both = P.sum(others, keepdims=True) if others else P
        found[i] = np.broadcast_to(both / both.sum(i, keepdims=True), P.shape)
    return found


@pytest.mark.claim("thm-masked-loss", "pf:masked-loss")
@settings(max_examples=15)
@given(seeds)
def test_the_masked_loss_is_least_at_the_conditionals_of_each_blank(seed):
    """Any other answers lose by the mean Kullback-Leibler divergence, over sets of blanks and visible tokens."""
    rng = np.random.default_rng(seed)
    P = joint(rng, (2, 3, 2))
    for count in (1, 2, 3):
        sets = list(combinations(range(3), count))
        loss = least = divergence = 0.0
        for blanks in sets:
            for i, truth in given_rest(P, blanks).items():
                shape = tuple(P.shape[k] if k not in blanks or k == i else 1 for k in range(3))
                answer = rng.random(shape) + 0.1  # depends on what is visible, and on nothing else
                answer = np.broadcast_to(answer / answer.sum(i, keepdims=True), P.shape)
                share = 1 / (len(sets) * count)
                loss -= share * (P * np.log(answer)).sum()
                least -= share * (P * np.log(truth)).sum()
                divergence += share * (P * np.log(truth / answer)).sum()
        compare(loss - least, divergence, name="what is lost", atol=1e-12)
        assert loss > least + 1e-3
        if count == 1:
            one = -np.mean([(P * np.log(given_rest(P, (i,))[i])).sum() for i in range(3)])
            compare(least, one, name="a third of the pseudo-likelihood", atol=1e-12)


@pytest.mark.claim("thm-masked-loss")
def test_the_pseudo_likelihood_is_not_the_likelihood(rng):
    """The sum of the conditionals' entropies is at most the entropy of the text, and mostly less."""
    for _ in range(20):
        P = joint(rng, (2, 3, 2))
        entropy = -(P * np.log(P)).sum()
        pseudo = -sum((P * np.log(given_rest(P, (i,))[i])).sum() for i in range(3))
        assert pseudo < entropy - 1e-3
    A, B, C = (rng.dirichlet(np.ones(k)) for k in (2, 3, 2))
    P = np.einsum("a,b,c->abc", A, B, C)
    pseudo = -sum((P * np.log(given_rest(P, (i,))[i])).sum() for i in range(3))
    compare(pseudo, -(P * np.log(P)).sum(), name="independent tokens", atol=1e-12)


def conditionals(P):
    """Of the first token given the second, and of the second given the first; both with the first along the rows."""
    return P / P.sum(0, keepdims=True), P / P.sum(1, keepdims=True)


def product_form(A, B):
    """Whether A / B is u(a) v(b): all cross-ratios of A are those of B."""
    R = A / B
    return np.allclose(R * R[0, 0], R[:, :1] * R[:1], rtol=1e-9)


@pytest.mark.claim("thm-compatible")
@settings(max_examples=25)
@given(seeds, st.integers(2, 4), st.integers(2, 4))
def test_conditionals_have_a_joint_exactly_if_their_ratio_is_a_product(seed, n, m):
    rng = np.random.default_rng(seed)
    P = joint(rng, (n, m))
    A, B = conditionals(P)
    assert product_form(A, B)
    v = A[0] / B[0]  # the proof's construction: the joint is B(b | a) u'(a), and it is the only one
    column = (A / B)[:, 0] / v[0]
    mass = column / column.sum()
    compare(B * mass[:, None], P, name="the joint that the conditionals determine", atol=1e-10)
    other = np.abs(A + 0.2 * rng.random((n, m)))
    other /= other.sum(0, keepdims=True)
    assert not product_form(other, B)
    # no joint has both: the stationary distribution of "redraw b, then a" is the only candidate, and its A is another
    step = np.einsum("ab,cb->ac", B, other)  # from a to c
    values, vectors = np.linalg.eig(step.T)
    mass = np.real(vectors[:, np.argmax(values.real)])
    candidate = B * (mass / mass.sum())[:, None]
    assert np.abs(conditionals(candidate)[0] - other).max() > 1e-6


@pytest.mark.claim("thm-compatible")
def test_the_example_of_two_words_has_no_joint():
    """One conditional wants the words alike with 0.9, the other wants them to differ with 0.9."""
    A, B = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.1, 0.9], [0.9, 0.1]])
    assert not product_form(A, B)
    ratios = [X[0, 0] * X[1, 1] / (X[0, 1] * X[1, 0]) for X in (A, B)]
    compare(np.array(ratios), np.array([81.0, 1 / 81]), name="cross-ratios", atol=1e-12)
    for p in np.linspace(0, 1, 101):  # whatever the first word's distribution is
        P = B * np.array([p, 1 - p])[:, None]
        assert np.abs(P / P.sum(0, keepdims=True) - A).max() >= 0.79


@pytest.mark.claim("prop-unchanged", "pf:seen-token")
@settings(max_examples=15)
@given(seeds, st.sampled_from([(0.8, 0.1, 0.1), (0.8, 0.2, 0.0), (0.5, 0.2, 0.3), (0.8, 0.0, 0.2)]))
def test_what_the_best_model_says_of_a_token_that_it_sees(seed, split):
    rng = np.random.default_rng(seed)
    q, (masked, drawn, kept) = rng.dirichlet(np.ones(5)), split
    t = len(q)
    table = np.zeros((t + 1, t))  # what is seen (the last one is the blank), and what was there
    for seen, was in product(range(t), range(t)):
        table[seen, was] = q[was] * (drawn / t + kept * (seen == was))
    table[t] = masked * q
    for x in range(t):
        after = table[x] / table[x].sum()
        want = q * (drawn / t + kept * (np.arange(t) == x)) / (drawn / t + kept * q[x])
        compare(after, want, name="Bayes", atol=1e-12)
        if kept == 0:
            compare(after, q, name="without unchanged tokens the token seen is ignored", atol=1e-12)
        if drawn == 0:
            compare(after, np.eye(t)[x], name="without random tokens it is copied", atol=1e-12)
    compare(table[t] / table[t].sum(), q, name="at a blank", atol=1e-12)
    if drawn == kept:
        for q in (1 / (t + 2) - 1e-6, 1 / (t + 2) + 1e-6):
            assert (q * (drawn / t + kept) / (drawn / t + kept * q) >= 0.5) is (q > 1 / (t + 2))


@pytest.mark.claim("lem-mask-share")
def test_how_many_predictions_see_all_that_they_need(rng):
    """Enumerated for exact counts; for independent draws n p (1 - p)^k, greatest at p = 1 / (k + 1)."""
    n, k = 7, 2
    for p in (0.1, 0.3, 0.6):
        total = 0.0
        for drawn in product((0, 1), repeat=n):
            chance = np.prod([p if d else 1 - p for d in drawn])
            total += chance * sum(
                d and not any(drawn[(i + s) % n] for s in range(1, k + 1)) for i, d in enumerate(drawn)
            )
        compare(total, n * p * (1 - p) ** k, name="independent", atol=1e-12)
    for count in range(1, n):
        sets = list(combinations(range(n), count))
        total = np.mean([sum(all((i + s) % n not in c for s in range(1, k + 1)) for i in c) for c in sets])
        compare(total, count * comb(n - 1 - k, count - 1) / comb(n - 1, count - 1), name="exact counts", atol=1e-12)
    shares = np.linspace(0.001, 0.999, 999)
    for k in (1, 2, 6, 19):
        best = shares[np.argmax(shares * (1 - shares) ** k)]
        assert abs(best - 1 / (k + 1)) < 1e-3
    mask = np.ones((4000, n), bool)
    chosen = masking.choose(mask, rng, 3 / n)
    whole = chosen & ~np.roll(chosen, 1, 1) & ~np.roll(chosen, -1, 1)
    want = 3 * comb(n - 3, 2) / comb(n - 1, 2)
    assert abs(whole.sum() / len(mask) - want) < 0.05, "the library's draws are those of the enumeration"


@pytest.mark.claim("eq:masked-head", "eq:masked-head-vjp")
def test_the_head_is_its_formula_and_its_gradient_by_hand(rng):
    d, t = 5, 7
    H, E = rng.standard_normal((3, d)), rng.standard_normal((t, d))
    p = shapes.random_tree(masked_head_shapes(d, t), rng, 0.7)
    Z, vjp = an.masked_head(H, p, E)
    A = H @ p["transform"]["weight"] + p["transform"]["bias"]
    B = F.gelu(torch.from_numpy(A)).numpy()
    T = (B - B.mean(-1, keepdims=True)) / np.sqrt(B.var(-1, keepdims=True) + 1e-12)
    T = T * p["norm"]["gain"] + p["norm"]["bias"]
    compare(Z, T @ E.T + p["bias"], name="formula", atol=1e-12)
    dZ = rng.standard_normal(Z.shape)
    _, dp, dE = vjp(dZ)
    compare(dE, dZ.T @ T, name="dE", atol=1e-12)
    compare(dp["bias"], dZ.sum(0), name="dc", atol=1e-12)
    check_vjp(lambda H, p, E: an.masked_head(H, p, E), H, p, E, rng=rng)


@pytest.mark.claim("eq:masked-head-vjp")
def test_the_word_vectors_receive_from_both_of_their_uses(rng):
    """Where the table is tied, its cotangent is the sum of those of two tables of equal numbers."""
    params = shapes.random_tree(masked_language_model_shapes(11, 6, 1, 4, 9, 1, heads=2), rng, 0.5)
    ids, chosen = rng.integers(0, 11, (2, 5)), rng.random((2, 5)) < 0.5
    Z, vjp = an.masked_language_model(ids, params, 2, None, chosen)
    untied = params | {"head": params["head"] | {"table": params["embeddings"]["word"]}}
    Y, other = an.masked_language_model(ids, untied, 2, None, chosen)
    compare(Y, Z, name="value", atol=0.0)
    dZ = rng.standard_normal(Z.shape)
    one, two = vjp(dZ), other(dZ)
    compare(one["embeddings"]["word"], two["embeddings"]["word"] + two["head"]["table"], name="sum", atol=1e-12)
    assert min(np.abs(two["embeddings"]["word"]).max(), np.abs(two["head"]["table"]).max()) > 1e-2


@pytest.mark.claim("eq:masked-count", "eq:masked-input")
@settings(max_examples=25)
@given(seeds, st.floats(0.01, 1.0), st.integers(1, 9), st.integers(1, 40))
def test_counts_are_exact(seed, share, b, n):
    rng = np.random.default_rng(seed)
    mask = rng.random((b, n)) < 0.8
    ids = rng.integers(10, 30, (b, n))
    found = masking.blank(ids, mask, rng, token=1, words=range(100, 200), share=share)
    free = mask.sum(-1)
    assert (found.chosen.sum(-1) == np.minimum(np.maximum(np.floor(share * free + 0.5), 1), free)).all()
    assert not (found.chosen & ~mask).any() and (found.targets == ids).all()
    assert (found.ids[~found.chosen] == ids[~found.chosen]).all()
    c, seen = int(found.chosen.sum()), found.ids[found.chosen]
    kinds = [int((seen == 1).sum()), int((seen >= 100).sum()), int((seen == ids[found.chosen]).sum())]
    assert kinds == masking.portions(c, (0.8, 0.1, 0.1)) and sum(kinds) == c
    assert all(abs(k - c * s) < 1 for k, s in zip(kinds, (0.8, 0.1, 0.1), strict=True))
