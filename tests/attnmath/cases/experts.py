"""Mixtures of experts: each is compared with a plain formula by PyTorch's own `topk`; other models' layers in
tests/attnmath/test_experts.py."""

from functools import partial

import torch
import torch.nn.functional as F

import attnmath.numpy as an
from attnmath.experts import mixture_shapes
from tests.attnmath.cases.case import FF, B, Case, D, M, N, normal, tree

EXPERTS, TOP = 7, 2
HELPERS = {"dispatch"}  # booleans have no gradient


def reference_gates(S, top=TOP, capacity=None, *, renormalise=True):
    """Softmax first, then PyTorch's top-k; tokens queue one by one, first choices before second ones."""
    P = S.softmax(-1)
    values, choices = P.topk(top, -1)
    values = values / values.sum(-1, keepdim=True) if renormalise else values
    room = torch.ones_like(values)
    if capacity is not None:
        for b in range(len(S)):
            taken = [0] * S.shape[-1]
            for rank in range(top):
                for t in range(S.shape[1]):
                    i = int(choices[b, t, rank])
                    room[b, t, rank] = taken[i] < capacity
                    taken[i] += 1
    return torch.zeros_like(P).scatter(-1, choices, values * room)


def swiglu(X, params):
    gate, up, down = (params[name]["weight"] for name in ("gate", "up", "down"))
    return F.linear(F.silu(F.linear(X, gate.T)) * F.linear(X, up.T), down.T)


def gelu_network(X, params):
    up, down = params["up"], params["down"]
    return F.linear(F.gelu(F.linear(X, up["weight"].T, up["bias"])), down["weight"].T, down["bias"])


def reference_mixture(X, params, network=swiglu, **options):
    """Every expert on every token, weighted."""
    S = F.linear(X, params["router"]["weight"].T, params["router"].get("bias"))
    G = reference_gates(S.reshape(1, -1, S.shape[-1]) if S.ndim == 2 else S, **options).reshape(S.shape)
    values = torch.stack([network(X, params["experts"][str(i)]) for i in range(S.shape[-1])], -1)
    return (values * G[..., None, :]).sum(-1)


def reference_balance(S, top=1):
    e = S.shape[-1]
    hits = F.one_hot(S.reshape(-1, e).topk(top, -1).indices, e).to(S.dtype).sum(1)
    return e * (hits.mean(0) / top) @ S.reshape(-1, e).softmax(-1).mean(0)


SWIGLU = mixture_shapes(D, FF, EXPERTS)
BIASED_EXPERTS = mixture_shapes(D, FF, EXPERTS, an.feed_forward)
BIASED_ROUTER = SWIGLU | {"router": SWIGLU["router"] | {"bias": (EXPERTS,)}}


def mixture(circumstance, shape, params, network=swiglu, **options):
    count = params["router"]["weight"][1]

    def call(world, X, params):
        kind = {} if network is swiglu else {"expert": world.feed_forward}
        return world.mixture_of_experts(X, params, count, **options, **kind)

    return Case(
        "mixture_of_experts",
        circumstance,
        tree(shape, params),
        call,
        partial(reference_mixture, network=network, **options),
        vjp_atol=1e-11,
    )


def gates(circumstance, draw, **options):
    return Case(
        "top_k_gates",
        circumstance,
        draw,
        lambda world, S: world.top_k_gates(S, **options),
        lambda S: reference_gates(S, **options),
    )


def balance(circumstance, draw, top=1):
    call = lambda world, S: world.load_balance(S, top)  # noqa: E731
    return Case("load_balance", circumstance, draw, call, lambda S: reference_balance(S, top))


def z_loss(circumstance, draw):
    call = lambda world, S: world.router_z_loss(S)  # noqa: E731
    return Case("router_z_loss", circumstance, draw, call, lambda S: S.logsumexp(-1).square().mean())


SCORES = normal(B, M, EXPERTS, scale=2.0)
HUGE = normal(B, M, EXPERTS, scale=1e4)
EXAMPLE = normal(N, EXPERTS)

CASES = [
    gates("two", SCORES),
    gates("three", SCORES, top=3),
    gates("raw", SCORES, top=TOP, renormalise=False),
    gates("one-raw", SCORES, top=1, renormalise=False),
    gates("room-for-one", SCORES, top=TOP, capacity=1),
    gates("room-for-two", SCORES, top=3, capacity=2, renormalise=False),
    gates("all", SCORES, top=EXPERTS),
    gates("one-expert", normal(B, M, 1), top=1),
    gates("huge", HUGE),
    gates("no-batch", normal(0, M, EXPERTS)),
    mixture("two", (B, M, D), SWIGLU, top=TOP),
    mixture("one", (B, M, D), SWIGLU, top=1, renormalise=False),
    mixture("no-leading-axis", (N, D), SWIGLU, top=TOP),
    mixture("router-bias", (B, M, D), BIASED_ROUTER, top=3),
    mixture("experts-with-biases", (B, M, D), BIASED_EXPERTS, gelu_network, top=TOP),
    mixture("room-for-one", (B, M, D), SWIGLU, top=TOP, capacity=1),
    mixture("one-expert", (B, M, D), mixture_shapes(D, FF, 1), top=1),
    mixture("no-batch", (0, M, D), SWIGLU, top=TOP),
    balance("one", SCORES),
    balance("two", SCORES, top=2),
    balance("no-leading-axis", EXAMPLE),
    balance("one-expert", normal(B, M, 1)),
    balance("huge", HUGE),
    z_loss("scores", SCORES),
    z_loss("no-leading-axis", EXAMPLE),
    z_loss("one-expert", normal(B, M, 1)),
    z_loss("huge", HUGE),
]
