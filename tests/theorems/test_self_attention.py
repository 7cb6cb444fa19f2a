"""The statements of the notebooks `self_attention` and `equivariance`, as tests that would refute them."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare
from attnmath.shapes import encoder_layer_shapes, random_tree

WORLDS = ("numpy", "torch")
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=8, deadline=None)
slow = settings(max_examples=3, deadline=None)
spreads = st.sampled_from([0.1, 1.0, 3.0, 10.0])


def call(world, name, *arrays, **static):
    """A library function in either world: NumPy arrays in, NumPy array out."""
    if world == "numpy":
        return getattr(an, name)(*arrays, **static)[0]
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    return getattr(at, name)(*tensors, **static).numpy()


def draw(rng, n=5, d=3, k=2, v=7, spread=1.0):
    """A sequence and three maps."""
    return rng.standard_normal((n, d)), *(spread * rng.standard_normal((d, width)) for width in (k, k, v))


def random_mask(rng, n, m):
    mask = rng.random((n, m)) < 0.6
    mask[np.arange(n), rng.integers(m, size=n)] = True
    return mask


# The bounds of lem-tied-scores, of any circle and from five positions on.
THIRD, FIFTH = 1 / 3, 1 / (2 + 4 / 3 * 6**0.25)


def geometric_mean(x):
    return np.exp(np.log(x).mean())


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("eq:self-projections", "eq:self-attention", "pf:self-weight", "pf:self-output")
def test_self_attention_position_by_position(world, seed):
    X, Wq, Wk, Wv = draw(np.random.default_rng(seed))
    want = np.zeros((5, 7))
    for i, x in enumerate(X):
        weights = [np.exp((x @ Wq) @ (y @ Wk) / np.sqrt(2)) for y in X]
        for weight, y in zip(weights, X, strict=True):
            want[i] += weight / sum(weights) * (y @ Wv)
    compare(call(world, "self_attention", X, Wq, Wk, Wv), want)


@pytest.mark.claim("pf:self-example", "eq:self-attention")
def test_the_worked_example_in_sevenths():
    X = np.array([[1.0, 0], [0, 1], [-1, -1]])
    Wq = np.sqrt(2) * np.log(2) * np.array([[0.0, -1], [1, 0]])
    Wv = np.array([[7.0, 7], [0, 7]])
    compare(7 * an.attention_weights(X @ Wq, X)[0], np.array([[2.0, 1, 4], [4, 2, 1], [1, 4, 2]]))
    compare(an.self_attention(X, Wq, np.eye(2), Wv)[0], np.array([[-2.0, -5], [3, 4], [-1, 1]]))


@pytest.mark.claim("eq:self-attention-vjp", "pf:self-variation")
def test_the_cotangent_of_the_sequence_is_a_sum_of_three(rng):
    X, Wq, Wk, Wv = draw(rng)
    mask = random_mask(rng, 5, 5)
    check_vjp(lambda *args: an.self_attention(*args, mask), X, Wq, Wk, Wv, rng=rng)
    dO = rng.standard_normal((5, 7))
    tensors = [torch.tensor(A, requires_grad=True) for A in (X, Wq, Wk, Wv)]
    at.self_attention(*tensors, torch.tensor(mask)).backward(torch.tensor(dO))
    compare(an.self_attention(X, Wq, Wk, Wv, mask)[1](dO), tuple(t.grad for t in tensors), name="vjp")
    total = np.zeros_like(X)
    for part in range(3):  # let X move in one of its three places at a time
        moving = [torch.tensor(X, requires_grad=i == part) for i in range(3)]
        maps = (torch.tensor(W) for W in (Wq, Wk, Wv))
        at.attention(*(x @ W for x, W in zip(moving, maps, strict=True)), torch.tensor(mask)).backward(torch.tensor(dO))
        total += moving[part].grad.numpy()
    compare(an.self_attention(X, Wq, Wk, Wv, mask)[1](dO)[0], total, name="the three paths")


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds, st.integers(3, 6), spreads)
@pytest.mark.claim("lem-tied-scores")
def test_one_matrix_for_queries_and_keys_gives_the_predecessor_a_third_at_most(world, seed, r, spread):
    rng = np.random.default_rng(seed)
    n = r + int(rng.integers(3))  # positions off the circle may be there too
    X, W, *_ = draw(rng, n=n, d=4, k=3, spread=spread)
    S = call(world, "scaled_dot_score", X @ W, X @ W)
    log_P = call(world, "log_softmax", S)
    compare(S, S.T, name="symmetric")
    assert np.linalg.eigvalsh(S)[0] > -1e-9 * max(1, np.abs(S).max())
    assert (2 * S <= np.diag(S) + np.diag(S)[:, None] + 1e-9 * np.abs(S).max()).all()
    longest = np.linalg.norm(X @ W, axis=1).argmax()
    assert S[longest].argmax() == longest
    U = X @ W / np.linalg.norm(X @ W, axis=1, keepdims=True)  # queries of one length: everyone prefers itself
    assert (call(world, "attention_weights", U, U).argmax(1) == np.arange(n)).all()
    circle = rng.permutation(n)[:r]
    back, ahead, self_ = (log_P[circle, np.roll(circle, s)].mean() for s in (1, -1, 0))
    compare(back, ahead, name="predecessor and successor", atol=1e-8)
    assert back <= self_ + 1e-9
    assert back <= np.log(THIRD) + 1e-9
    if len(circle) >= 5:
        assert back <= np.log(FIFTH) + 1e-9, "item 3"


@pytest.mark.claim("lem-tied-scores")
def test_the_bound_of_a_third_is_attained_and_each_hypothesis_is_needed(rng):
    before = np.array([2, 0, 1])
    compare(geometric_mean(an.attention_weights(np.zeros((3, 1)), np.zeros((3, 1)))[0][range(3), before]), THIRD)
    X, turn = np.array([[1.0, 0], [0, 1], [-1, -1]]), np.array([[0.0, -1], [1, 0]])
    assert geometric_mean(an.attention_weights(20 * X @ turn, X)[0][range(3), before]) > 0.99  # two matrices
    S = 50 * np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0.0]])  # symmetric, not semidefinite
    compare(geometric_mean(an.softmax(S)[0][range(4), [3, 0, 1, 2]]), 0.5)
    for _ in range(20):  # and one half is the most that symmetry allows
        S = 5 * rng.standard_normal((4, 4))
        P, _ = an.softmax(S + S.T)
        assert geometric_mean(P[range(4), [3, 0, 1, 2]]) <= 0.5
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    P, _ = an.attention_weights(5 * X / lengths, 5 * X / lengths)
    assert (P.argmax(1) == np.arange(3)).all()  # one length: everyone prefers itself


@pytest.mark.claim("lem-tied-scores")
def test_eight_positions_come_near_the_bound_of_five():
    """The best value on eight positions is 0.2256, so that no bound below it can hold; the loss is convex in S."""
    before, Wq = (np.arange(8) - 1) % 8, np.random.default_rng(1).standard_normal((8, 8))
    for _ in range(500):
        P, vjp = an.attention_weights(Wq, Wq)
        dP = np.zeros((8, 8))
        dP[range(8), before] = -1 / (8 * P[range(8), before])
        Wq = Wq - 2 * sum(vjp(dP))
    assert 0.2255 < geometric_mean(P[range(8), before]) < 0.2257 < FIFTH < 0.2447
    gradient = P.copy()  # of the loss by S: without a negative eigenvalue, and orthogonal to S, it certifies the least
    gradient[range(8), before] -= 1
    assert np.linalg.eigvalsh((gradient + gradient.T) / 2)[0] > -1e-6 and abs((gradient * np.log(P)).sum()) < 1e-6


@quick
@given(seeds, spreads)
@pytest.mark.claim("lem-tied-scores", "exr-tied-pair")
def test_two_positions_cannot_prefer_each_other(seed, spread):
    X, W, *_ = draw(np.random.default_rng(seed), n=4, spread=spread)
    log_P, _ = an.log_softmax(an.scaled_dot_score(X @ W, X @ W)[0])
    diagonal = np.diag(log_P)
    assert (log_P + log_P.T <= diagonal + diagonal[:, None] + 1e-9).all()
    assert min(log_P[0, 1], log_P[1, 0]) <= np.log(0.5) + 1e-12


@pytest.mark.parametrize("world", WORLDS)
@slow
@given(seeds)
@pytest.mark.claim("lem-score-gauge")
def test_the_weights_know_the_product_of_the_two_matrices_and_no_more(world, seed):
    rng = np.random.default_rng(seed)
    d, k = 5, 3
    X, Wq, Wk, _ = draw(rng, d=d, k=k)
    A = rng.standard_normal((k, k)) + 3 * np.eye(k)
    other = Wq @ A, Wk @ np.linalg.inv(A).T
    P = call(world, "attention_weights", X @ Wq, X @ Wk)
    compare(call(world, "attention_weights", X @ other[0], X @ other[1]), P, atol=1e-9)
    # item 3: A comes back from the two pairs alone
    B = other[1].T @ np.linalg.pinv(Wk.T)
    compare(np.linalg.inv(B), A, name="the matrix between the two pairs", atol=1e-8)
    compare(Wq @ np.linalg.inv(B), other[0], name="queries", atol=1e-8)
    # item 2: M comes back from weights of sequences of two rows
    M, base = np.zeros((d, d)), np.zeros(d)
    for i, j in np.ndindex(d, d):
        pair = np.stack([np.eye(d)[i], base])  # rows x and y: the log ratio is x M (x - y)', here entry ii for y = 0
        pair[1] = pair[0] - np.eye(d)[j]
        P = call(world, "attention_weights", pair @ Wq, pair @ Wk)
        M[i, j] = np.sqrt(k) * np.log(P[0, 0] / P[0, 1])
    compare(M, Wq @ Wk.T, name="the product, read off the weights", atol=1e-8)


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("lem-query-key-permutation", "pf:query-key-permutation", "pf:softmax-commutes")
def test_permuted_queries_permute_the_output_and_permuted_pairs_do_not(world, seed):
    rng = np.random.default_rng(seed)
    n, m = 5, 7
    Q, K, V = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)), rng.standard_normal((m, 2))
    M, pi, sigma = random_mask(rng, n, m), rng.permutation(n), rng.permutation(m)
    O = call(world, "attention", Q, K, V, M)
    moved = Q[pi], K[sigma], V[sigma], M[pi][:, sigma]
    compare(call(world, "attention", *moved), O[pi], name="output")
    P = call(world, "attention_weights", Q, K, M)
    compare(call(world, "attention_weights", moved[0], moved[1], moved[3]), P[pi][:, sigma], name="weights")
    S = rng.standard_normal((n, m))
    compare(call(world, "softmax", S[pi][:, sigma]), call(world, "softmax", S)[pi][:, sigma], name="softmax")


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds, spreads)
@pytest.mark.claim(
    "thm-permutation-equivariance",
    "pf:permutation-matrix",
    "pf:equivariance",
    "pf:permuted-queries",
    "pf:permuted-keys",
    "pf:permuted-values",
    "pf:permuted-scores",
    "pf:permuted-weights",
    "pf:permuted-output",
)
def test_permuting_the_sequence_permutes_the_output(world, seed, spread):
    rng = np.random.default_rng(seed)
    X, Wq, Wk, Wv = draw(rng, spread=spread)
    order = rng.permutation(5)
    Pi = np.eye(5)[order]
    compare(Pi @ X, X[order], name="matrix and index")
    compare(Pi.T @ Pi, np.eye(5))
    moved = Pi @ X
    for W in (Wq, Wk, Wv):
        compare(moved @ W, Pi @ (X @ W), name="projections")
    S = call(world, "scaled_dot_score", X @ Wq, X @ Wk)
    compare(call(world, "scaled_dot_score", moved @ Wq, moved @ Wk), Pi @ S @ Pi.T, name="scores", atol=1e-9)
    P = call(world, "attention_weights", X @ Wq, X @ Wk)
    compare(call(world, "attention_weights", moved @ Wq, moved @ Wk), Pi @ P @ Pi.T, name="weights", atol=1e-9)
    O = call(world, "self_attention", X, Wq, Wk, Wv)
    compare(call(world, "self_attention", moved, Wq, Wk, Wv), Pi @ O, name="output", atol=1e-9)


@pytest.mark.claim("thm-permutation-equivariance")
def test_equivariance_needs_a_permutation_and_no_positions(rng):
    X, Wq, Wk, Wv = draw(rng)
    O, _ = an.self_attention(X, Wq, Wk, Wv)
    turn, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    assert np.abs(an.self_attention(turn @ X, Wq, Wk, Wv)[0] - turn @ O).max() > 0.05
    positions, order = rng.standard_normal((5, 3)), np.array([1, 0, 2, 3, 4])
    O, _ = an.self_attention(X + positions, Wq, Wk, Wv)
    assert np.abs(an.self_attention(X[order] + positions, Wq, Wk, Wv)[0] - O[order]).max() > 0.05


def test_two_orders_generate_all():
    """The exchange of two neighbours and one cyclic shift, from which the page concludes about n! orders."""
    swap, shift = (1, 0, 2, 3, 4), (1, 2, 3, 4, 0)
    known, fresh = set(), {(0, 1, 2, 3, 4)}
    while fresh:
        known |= fresh
        fresh = {tuple(p[i] for i in g) for p in fresh for g in (swap, shift)} - known
    assert known == set(permutations(range(5)))


@slow
@given(seeds)
@pytest.mark.claim("lem-equivariant-stack")
def test_encoder_layers_are_equivariant_and_their_mean_does_not_move(seed):
    rng = np.random.default_rng(seed)
    n, d = 5, 6
    layers = [random_tree(encoder_layer_shapes(d, 11), rng, 0.7) for _ in range(2)]

    def stack(X, mask=True):
        for params in layers:
            X, _ = an.encoder_layer(X, params, 2, mask)
        return X

    X, order = rng.standard_normal((n, d)), rng.permutation(n)
    compare(stack(X[order]), stack(X)[order], name="stack", atol=1e-9)
    compare(stack(X[order]).mean(0), stack(X).mean(0), name="mean", atol=1e-9)
    causal, swap = an.causal_mask(n), [1, 0, 2, 3, 4]
    assert np.abs(stack(X[swap], causal) - stack(X, causal)[swap]).max() > 1e-4


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("lem-equal-tokens")
def test_equal_tokens_get_equal_outputs_and_are_counted(world, seed):
    rng = np.random.default_rng(seed)
    Y, Wq, Wk, Wv = draw(rng, n=3)
    counts = rng.integers(1, 5, 3)
    which = rng.permutation(np.repeat(np.arange(3), counts))
    O = call(world, "self_attention", Y[which], Wq, Wk, Wv)
    S = call(world, "scaled_dot_score", Y @ Wq, Y @ Wk)
    want = call(world, "softmax", S + np.log(counts)) @ (Y @ Wv)
    compare(O, want[which], name="outputs from the counts")


def test_a_set_does_not_determine_the_outputs(rng):
    Y, Wq, Wk, Wv = draw(rng, n=2)
    once, twice = (an.self_attention(Y[rows], Wq, Wk, Wv)[0] for rows in ([0, 1], [0, 0, 1]))
    assert np.abs(once[0] - twice[0]).max() > 0.01


@pytest.mark.parametrize("world", WORLDS)
@slow
@given(seeds)
@pytest.mark.claim("lem-mask-permutation")
def test_a_mask_lets_through_the_orders_that_fix_it(world, seed):
    rng = np.random.default_rng(seed)
    n = 4
    X, Wq, Wk, Wv = draw(rng, n=n)
    masks = [an.window_mask(n, 1), np.tile(np.arange(n) < 3, (n, 1)), random_mask(rng, n, n)]  # the first two have some
    M = masks[seed % 3]
    zero, eye = np.zeros_like(Wq), np.eye(3)
    some = [[3, 2, 1, 0], [1, 2, 0, 3], *(rng.permutation(n) for _ in range(4))]
    for pi in some:
        moved = M[pi][:, pi]
        O = call(world, "self_attention", X, Wq, Wk, Wv, M)
        compare(call(world, "self_attention", X[pi], Wq, Wk, Wv, moved), O[pi], name="mask permuted along")
        if (moved == M).all():
            compare(call(world, "self_attention", X[pi], Wq, Wk, Wv, M), O[pi], name="an order that fixes the mask")
        else:  # the proof's choice of matrices tells them apart
            O = call(world, "self_attention", X, zero, zero, eye, M)
            assert np.abs(call(world, "self_attention", X[pi], zero, zero, eye, M) - O[pi]).max() > 1e-6


@pytest.mark.claim("lem-mask-permutation", "exr-window-symmetry")
def test_the_causal_mask_has_no_symmetry_and_a_window_has_few():
    def symmetries(M):
        return sum((M[list(p)][:, list(p)] == M).all() for p in permutations(range(5)))

    assert symmetries(an.causal_mask(5)) == 1
    assert [symmetries(an.window_mask(5, width)) for width in range(5)] == [120, 2, 2, 12, 120]


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds, st.integers(2, 40))
@pytest.mark.claim("lem-causal-positions")
def test_a_causal_layer_counts_from_a_mark_and_not_without(world, seed, n):
    rng = np.random.default_rng(seed)
    X, Wq, Wk, Wv = draw(rng, n=n, d=4, k=2)
    X[:, 1] = np.arange(n) == 0
    read, zero = np.eye(4)[:, 1:2], np.zeros((4, 2))
    causal = an.causal_mask(n)
    got = call(world, "self_attention", X, zero, rng.standard_normal((4, 2)), read, causal)[:, 0]
    compare(got, 1 / np.arange(1, n + 1), name="one over t")
    same = np.repeat(X[:1], n, axis=0)
    compare(call(world, "self_attention", same, Wq, Wk, Wv, causal), same @ Wv, name="equal tokens", atol=1e-9)


@pytest.mark.claim("lem-causal-positions")
def test_a_stack_of_causal_layers_keeps_equal_rows_equal(rng):
    X = np.repeat(rng.standard_normal((1, 6)), 5, axis=0)
    for _ in range(3):
        X, _ = an.encoder_layer(X, random_tree(encoder_layer_shapes(6, 11), rng, 0.7), 2, an.causal_mask(5))
    compare(X, np.repeat(X[:1], 5, axis=0), atol=1e-9)


@pytest.mark.claim("exr-float16-count", "exr-linear-equivariant")
def test_the_numbers_of_the_exercises(rng):
    share = 1 / torch.arange(1, 4000, dtype=torch.float64)
    for dtype, first in ((torch.float16, 1464), (torch.bfloat16, 190)):
        rounded = share.to(dtype)
        assert int((rounded[1:] == rounded[:-1]).nonzero()[0]) + 1 == first
    n, commute = 4, []
    for pi in permutations(range(n)):  # vec(Pi A - A Pi) = 0, the solutions are a I + b 1
        Pi = np.eye(n)[list(pi)]
        commute.append(np.kron(Pi, np.eye(n)) - np.kron(np.eye(n), Pi.T))
    assert n * n - np.linalg.matrix_rank(np.vstack(commute)) == 2
