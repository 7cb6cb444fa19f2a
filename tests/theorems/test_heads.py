"""The results of the pages on heads: gates and their gradients, pruning, what the trained model's heads look at."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import heads, minilm, patterns
from attnmath.check import compare
from attnmath.shapes import attention_shapes, random_tree


def layer(rng, heads_, k, v, d=6):
    return random_tree(attention_shapes(d, heads_, heads_, k, v), rng, 0.7)


def by_hand(X, params, gates, mask):
    """The sum over heads, each from its own columns and rows, without the functions under test."""
    h = len(gates)
    q, k, v = (np.split(X @ params[x]["weight"] + params[x]["bias"], h, -1) for x in ("query", "key", "value"))
    rows = np.split(params["output"]["weight"], h)
    terms = [gates[i] * an.attention(q[i], k[i], v[i], mask)[0] @ rows[i] for i in range(h)]
    return sum(terms) + params["output"]["bias"]


@pytest.mark.slow
@pytest.mark.claim("eq:head-gates")
@settings(max_examples=20)
@given(st.sampled_from([(1, 3, 2), (2, 3, 5), (3, 2, 2), (5, 1, 3)]), st.integers(0, 999))
def test_a_gate_multiplies_one_head_and_not_the_bias(sizes, seed):
    rng = np.random.default_rng(seed)
    params, X, gates = layer(rng, *sizes), rng.standard_normal((7, 6)), rng.standard_normal(sizes[0])
    mask = rng.random((7, 7)) < 0.6
    mask[:, 0] = True
    before = {name: part["weight"].copy() for name, part in params.items()}
    want = by_hand(X, params, gates, mask)
    got, _ = an.multi_head_attention(X, X, X, heads.gate_heads(params, gates), len(gates), mask)
    compare(got, want, name="gated attention", atol=1e-11)
    tensors = at.from_numpy(params)
    twin = at.multi_head_attention(
        *3 * [torch.tensor(X)], heads.gate_heads(tensors, torch.tensor(gates)), len(gates), torch.tensor(mask)
    )
    compare(twin, want, name="gated attention in torch", atol=1e-11)
    compare({name: part["weight"] for name, part in params.items()}, before, name="the parameters given")


@pytest.mark.slow
@pytest.mark.claim("lem-gate-gradient", "eq:gate-gradients")
@settings(max_examples=20)
@given(st.sampled_from([(2, 3, 5), (3, 2, 2), (5, 1, 3)]), st.integers(0, 999))
def test_the_gradient_of_a_gate_is_already_in_the_gradient_of_the_output_weight(sizes, seed):
    rng = np.random.default_rng(seed)
    params, X, dO = layer(rng, *sizes), rng.standard_normal((7, 6)), rng.standard_normal((7, 6))
    h = sizes[0]
    _, vjp = an.multi_head_attention(X, X, X, params, h)
    got = heads.gate_gradients(params, vjp(dO)[-1], h)
    whole = by_hand(X, params, np.ones(h), True)  # the loss is linear in each gate: a difference of any size is exact
    want = [(dO * (by_hand(X, params, np.ones(h) + e, True) - whole)).sum() for e in np.eye(h)]
    compare(got, np.array(want), name="gate gradients", atol=1e-10)

    tensors, gates = at.from_numpy(params), torch.ones(h, dtype=torch.float64, requires_grad=True)
    weight = tensors["output"]["weight"].detach().requires_grad_()
    tensors = tensors | {"output": tensors["output"] | {"weight": weight}}
    O = at.multi_head_attention(*3 * [torch.tensor(X)], heads.gate_heads(tensors, gates), h)
    dgates, dweight = torch.autograd.grad((O * torch.tensor(dO)).sum(), (gates, weight))
    compare(dgates, np.array(want), name="autograd through the gates", atol=1e-10)
    twin = heads.gate_gradients(tensors, {"output": {"weight": dweight}}, h)
    compare(twin, np.array(want), name="gate gradients in torch", atol=1e-10)


@pytest.mark.slow
@pytest.mark.claim("lem-gate-gradient")
@settings(max_examples=15)
@given(st.integers(0, 999))
def test_away_from_one_the_product_is_the_gate_times_its_gradient(seed):
    rng = np.random.default_rng(seed)
    params, X, gates = layer(rng, 3, 2, 2), rng.standard_normal((5, 6)), rng.uniform(0.2, 3, 3)
    dO = rng.standard_normal((5, 6))
    gated = heads.gate_heads(params, gates)
    _, vjp = an.multi_head_attention(X, X, X, gated, 3)
    whole = by_hand(X, params, gates, True)
    slope = np.array([(dO * (by_hand(X, params, gates + e, True) - whole)).sum() for e in np.eye(3)])
    compare(heads.gate_gradients(gated, vjp(dO)[-1], 3), gates * slope, name="products", atol=1e-10)


@pytest.mark.slow
@pytest.mark.claim("lem-prune-gates")
@settings(max_examples=20)
@given(
    st.sampled_from([(2, 3, 5), (3, 2, 2), (5, 1, 3)]),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(0, 99),
)
def test_pruning_is_a_gate_of_zero(sizes, kept, seed):
    rng = np.random.default_rng(seed)
    keep = np.array(kept[: sizes[0]])
    keep[seed % sizes[0]] = True
    params, X = layer(rng, *sizes), rng.standard_normal((7, 6))
    mask = rng.random((7, 7)) < 0.6
    mask[:, 0] = True
    small, h = heads.prune_heads(params, keep), int(keep.sum())
    want = by_hand(X, params, keep.astype(float), mask)
    compare(an.multi_head_attention(X, X, X, small, h, mask)[0], want, name="pruned attention", atol=1e-11)
    twin = heads.prune_heads(at.from_numpy(params), torch.tensor(keep))
    got = at.multi_head_attention(*3 * [torch.tensor(X)], twin, h, torch.tensor(mask))
    compare(got, want, name="pruned attention in torch", atol=1e-11)
    per_head = 2 * (6 + 1) * sizes[1] + (6 + 1) * sizes[2] + sizes[2] * 6

    def numbers(tree):
        return sum(x.size for part in tree.values() for x in part.values())

    assert numbers(params) - numbers(small) == (sizes[0] - h) * per_head


@pytest.fixture(scope="module")
def specimen():
    """The tokens of one sentence and the weights of MiniLM's 72 heads on it."""
    model, record = minilm.load(), {}
    ids, _ = model.encode(["The price of petrol has steadily fallen, and the army has dropped its fuel."])
    an.bert(ids, model.params, model.heads, record=record)
    P = [record["layers"][str(i)]["attention"]["weights"][0] for i in range(6)]
    return model.tokens(ids[0]), np.concatenate(P).astype(float)


@pytest.mark.slow
@pytest.mark.claim("ex-linguistic-heads")
def test_specimens_of_the_kinds(specimen):
    tokens, P = specimen
    at_ = tokens.index
    following = patterns.offset_score(P, 1)
    assert following.argmax() == 20 and following[20] > 0.5  # head 2.9
    assert patterns.column_score(P, np.isin(tokens, ["[CLS]", "[SEP]"]))[53] > 0.7  # head 5.6
    for a, b in (("petrol", "fuel"), ("fallen", "dropped")):  # head 3.10, both ways
        for query, key in ((a, b), (b, a)):
            assert P[33, at_(query), 1:-1].argmax() + 1 == at_(key)
    popular = P[69].mean(0)  # head 6.10: the participles, whoever asks
    assert popular[at_("fallen")] + popular[at_("dropped")] > 0.35
    first = [i for i, token in enumerate(tokens) if token == "has"]
    assert P[69, first][:, at_("fallen")].mean() < 2 * popular[at_("fallen")]


def divergence(P, Q):
    return patterns.entropy((P + Q) / 2) - (patterns.entropy(P) + patterns.entropy(Q)) / 2


@pytest.mark.claim("exr-js-bound")
@settings(max_examples=20)
@given(st.integers(2, 9), st.floats(0.1, 5), st.integers(0, 999))
def test_the_divergence_of_two_rows_is_bounded(m, scale, seed):
    rng = np.random.default_rng(seed)
    P, Q = (an.softmax(scale * rng.standard_normal((4, m)))[0] for _ in range(2))
    assert (divergence(P, Q) > 0).all() and (divergence(P, Q) < np.log(2)).all()
    compare(divergence(P, P), np.zeros(4), name="of a row and itself")
    apart = np.concatenate([P, 0 * P], -1), np.concatenate([0 * Q, Q], -1)
    compare(divergence(*apart), np.full(4, np.log(2)), name="without a common key", atol=1e-12)
