"""Mixtures of experts against transformers' Mixtral and Switch layers; their work, their modules, and bad input."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import experts as numbers
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.count import bytes_held
from attnmath.tree import flatten, map_tree
from tests.attnmath.test_references import Wide, randomised

D, F, E, B, N = 6, 11, 5, 3, 13  # width, hidden width, experts, texts, tokens of each


@pytest.fixture
def lifted(monkeypatch):
    """Float64 where transformers asks for float32."""
    from transformers.models.mixtral import modeling_mixtral
    from transformers.models.switch_transformers import modeling_switch_transformers

    for module in (modeling_mixtral, modeling_switch_transformers):
        monkeypatch.setattr(module, "torch", Wide("torch"))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def mixtral(top):
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    sizes = dict(hidden_size=D, intermediate_size=F, num_local_experts=E, num_experts_per_tok=top)
    model = MixtralSparseMoeBlock(MixtralConfig(experts_implementation="eager", **sizes))
    model = randomised(model)
    with torch.no_grad():
        model.gate.weight *= 3  # so that no two scores are nearly equal, where float32 would choose otherwise
    experts = {}
    for i, (both, down) in enumerate(zip(model.experts.gate_up_proj, model.experts.down_proj, strict=True)):
        gate, up = both.chunk(2)
        experts[str(i)] = {"gate": {"weight": gate.T}, "up": {"weight": up.T}, "down": {"weight": down.T}}
    return model, {"router": {"weight": model.gate.weight.T}, "experts": experts}


def switch(capacity, lifted=True):
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersSparseMLP

    sizes = dict(d_model=D, d_ff=F, num_experts=E, expert_capacity=capacity, dropout_rate=0.0, router_bias=True)
    model = SwitchTransformersSparseMLP(SwitchTransformersConfig(**sizes))
    model = randomised(model)
    experts = {}
    for i in range(E):
        own = model.experts[f"expert_{i}"]
        experts[str(i)] = {"up": {"weight": own.wi.weight.T}, "down": {"weight": own.wo.weight.T}}
    classifier = model.router.classifier
    with torch.no_grad():
        for leaf in classifier.parameters():
            leaf.copy_(leaf.float())  # float32 numbers: the layer may cast them to and fro
    model.router.dtype = torch.float64 if lifted else torch.float32
    return model, {"router": {"weight": classifier.weight.T, "bias": classifier.bias}, "experts": experts}


def check_layer(model, params, tolerance, **options):
    """Value, and the gradients of the input and of every parameter, by hand and by the twin."""
    X = torch.from_numpy(np.random.default_rng(1).standard_normal((B, N, D))).requires_grad_()
    dY = torch.from_numpy(np.random.default_rng(2).standard_normal((B, N, D)))
    parameters = list(model.parameters())
    theirs = model(X.clone())
    assert theirs.dtype == torch.float64
    want = torch.autograd.grad(theirs, [X, *parameters], dY)
    assert min(g.abs().max() for g in want) > 1e-3
    kind = {an: {}, at: {}}
    if not options["renormalise"]:  # Switch, whose experts are plain networks
        kind = {world: {"expert": partial(world.feed_forward, activation=world.relu)} for world in kind}
    twin = at.mixture_of_experts(X, params, E, **options, **kind[at])
    compare(twin, theirs, name="twin", atol=tolerance, rtol=tolerance)
    got = torch.autograd.grad(twin, [X, *parameters], dY, retain_graph=True)
    compare(got, want, name="twin's gradients", atol=10 * tolerance, rtol=10 * tolerance)
    Y, vjp = an.mixture_of_experts(X.detach().numpy(), at.to_numpy(params), E, **options, **kind[an])
    compare(Y, theirs, name="NumPy", atol=tolerance, rtol=tolerance)
    dX, dparams = vjp(dY.numpy())
    compare(dX, want[0], name="NumPy's dX", atol=10 * tolerance, rtol=10 * tolerance)
    leaves, cotangents = flatten(params), flatten(dparams)
    back = torch.autograd.grad(list(leaves.values()), parameters, [torch.tensor(cotangents[key]) for key in leaves])
    compare(back, want[1:], name="NumPy's dparams", atol=10 * tolerance, rtol=10 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("top", [1, 2, 3])
def test_mixtral(top, lifted):
    model, params = mixtral(top)
    if top > 1:
        check_layer(model, params, 1e-10, top=top, renormalise=True)
        return
    X = torch.ones(1, N, D, dtype=torch.float64)  # the router has no gradient there: values alone
    compare(at.mixture_of_experts(X, params, E, 1), model(X), name="one expert", atol=1e-10)


@pytest.mark.slow
def test_mixtral_with_its_casts():
    check_layer(*mixtral(2), 1e-6, top=2, renormalise=True)


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [1, 3, 64])
def test_switch(capacity):
    """The dtype of its router is a field; a token that finds no room gets zeros."""
    model, params = switch(capacity)
    check_layer(model, params, 1e-10, top=1, renormalise=False, capacity=capacity)
    X = torch.from_numpy(np.random.default_rng(1).standard_normal((B, N, D)))
    index, probability, scores = model.router(X)
    C = at.dispatch(scores, 1, capacity)
    compare(C, index.bool(), name="who processes what")
    compare(at.top_k_gates(scores, 1, capacity, renormalise=False), index * probability, name="gates", atol=1e-12)
    dropped = int((~C.any(-1)).sum())
    assert dropped == 0 if capacity == 64 else dropped > 5


@pytest.mark.slow
def test_switch_with_its_casts():
    model, params = switch(3, lifted=False)
    X = torch.from_numpy(np.random.default_rng(1).standard_normal((B, N, D)))
    relu = partial(at.feed_forward, activation=at.relu)
    ours = at.mixture_of_experts(X, params, E, 1, renormalise=False, capacity=3, expert=relu)
    compare(ours, model(X), name="in float32", atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("top", [1, 2])
def test_balancing_loss_is_that_of_transformers(top, lifted):
    """Which does not divide by k."""
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    S = torch.from_numpy(np.random.default_rng(3).standard_normal((B, N, E))).requires_grad_()
    theirs = load_balancing_loss_func((S.reshape(-1, E),), E, top)
    assert theirs.dtype == torch.float64 and abs(theirs.item() - top) > 1e-3
    compare(top * at.load_balance(S, top), theirs, name="twin", atol=1e-10)
    loss, vjp = an.load_balance(S.detach().numpy(), top)
    compare(top * loss, theirs, name="NumPy", atol=1e-10)
    compare(top * vjp(1.0), torch.autograd.grad(theirs, S)[0], name="gradient", atol=1e-10)


# Work and modules.


@pytest.fixture
def layer(rng):
    params = shapes.random_tree(numbers.mixture_shapes(D, F, E), rng, 0.5)
    return rng.standard_normal((B, N, D)), params


@pytest.mark.claim("eq:mixture-parameters", "eq:mixture-flops")
@pytest.mark.parametrize("top", [1, 2, E])
def test_parameters_and_work_are_as_counted(top, layer):
    X, params = layer
    held, used = numbers.mixture_parameters(D, E, top, 3 * D * F)
    assert held == sum(leaf.size for leaf in flatten(params).values())
    only = {name: leaf for name, leaf in flatten(params).items() if not name.startswith("experts")}
    assert used == sum(leaf.size for leaf in only.values()) + top * 3 * D * F
    with FlopCounterMode(display=False) as counter:
        at.mixture_of_experts(torch.from_numpy(X), at.from_numpy(params), E, top)
    assert counter.get_total_flops() == numbers.mixture_flops(B * N, D, E, top, 6 * D * F)


def test_the_number_of_experts_does_not_multiply_what_the_backward_pass_keeps(rng):
    """Beside the parameters: the rows of the chosen experts, and a few numbers for each token and expert's score."""
    n, width, inner = 64, 12, 48
    X = rng.standard_normal((n, width))

    def kept(experts, top):
        params = shapes.random_tree(numbers.mixture_shapes(width, inner, experts), rng, 0.5)
        held = bytes_held(an.mixture_of_experts(X, params, experts, top)[1])
        return held - sum(leaf.nbytes for leaf in flatten(params).values())

    few, many, twice = kept(4, 1), kept(32, 1), kept(32, 2)
    rows = 3 * n * inner * 8  # what a gated network of this width must keep of one choice for each token
    assert rows < few and many - few < 6 * 8 * n * (32 - 4)
    assert twice - many > rows, "the number of choices does multiply it"


def test_an_expert_sees_its_own_tokens_only(layer):
    """In both worlds: the rows that pass through the experts are k for each token, or fewer where there is no room."""
    X, params = layer
    for capacity in (None, 2):
        C = an.dispatch(an.affine(X, params["router"])[0], 2, capacity)
        for world in (an, at):
            seen = []

            def spy(rows, own, world=world, seen=seen):
                seen.append(len(rows))
                return world.gated_feed_forward(rows, own)

            given = (X, params) if world is an else (torch.from_numpy(X), at.from_numpy(params))
            world.mixture_of_experts(*given, E, 2, expert=spy, capacity=capacity)
            assert seen == C.sum((0, 1)).tolist()
            assert sum(seen) == 2 * B * N if capacity is None else sum(seen) < 2 * B * N


def test_a_dropped_token_gets_zeros_and_passes_no_gradient(layer):
    X, params = layer
    Y, vjp = an.mixture_of_experts(X, params, E, 1, renormalise=False, capacity=1)
    lost = ~an.dispatch(an.affine(X, params["router"])[0], 1, 1).any(-1)
    assert 0 < lost.sum() < lost.size
    assert not Y[lost].any() and np.abs(Y[~lost]).min() > 0
    dX, _ = vjp(np.random.default_rng(3).standard_normal(Y.shape))
    assert not dX[lost].any() and np.abs(dX[~lost]).min() > 0


def test_order_of_the_queue():
    """First choices go before second ones, earlier tokens before later ones, and each text has a queue of its own."""
    S = np.array([[3.0, 2, 1], [3, 2, 1], [1, 3, 2], [3, 1, 2]])
    assert an.dispatch(S, 2, 1).astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert an.dispatch(S, 2, 2).astype(int).tolist() == [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]]
    twice = np.stack([S, S[::-1]])
    compare(an.dispatch(twice, 2, 1)[0], an.dispatch(S, 2, 1))
    compare(at.dispatch(torch.from_numpy(twice), 2, 1), an.dispatch(twice, 2, 1))
    compare(at.dispatch(torch.zeros(2, 4), 3).int(), [[1, 1, 1, 0]] * 2)  # of equal scores the first
    compare(an.dispatch(np.zeros((2, 4)), 3).astype(int), [[1, 1, 1, 0]] * 2)


def test_module_is_a_shell_of_its_function(rng):
    X = torch.from_numpy(rng.standard_normal((2, N, D))).float()
    module = at.MixtureOfExperts(D, F, E, 2, capacity=3)
    assert set(module.state_dict()) == set(flatten(numbers.mixture_shapes(D, F, E)))
    compare(module(X), at.mixture_of_experts(X, module.tree(), E, 2, capacity=3), name="module")
    assert (module(X) - module(X, capacity=None)).abs().max() > 1e-3
    biased = at.MixtureOfExperts(D, F, E, 1, expert=at.feed_forward, renormalise=False)
    assert biased.experts.get_submodule("4").up.bias.shape == (F,)
    assert biased(X).shape == X.shape


def test_where_no_value_can_be_looked_at_the_result_is_the_same(rng):
    """Per-sample gradients, and the meta device."""
    module = at.MixtureOfExperts(D, F, E, 2).double()
    X = torch.from_numpy(rng.standard_normal((B, N, D)))

    def loss(X):
        Y = at.mixture_of_experts(X, module.tree(), E, 2, capacity=6)
        return (Y * torch.linspace(0.3, 1.7, Y.numel()).reshape(Y.shape)).sum()

    samples = torch.func.vmap(torch.func.grad(loss))(X)
    assert samples.abs().max() > 1e-2
    compare(samples, torch.stack([torch.func.grad(loss)(x) for x in X]), atol=1e-12)
    assert at.MixtureOfExperts(D, F, E).to("meta")(X.to("meta").float()).shape == X.shape


# In a model.

TOKENS, LAYERS, HEADS = 11, 2, 3
MIXED = partial(an.mixture_of_experts, experts=4, top=2)


def model_params(rng):
    sizes = shapes.decoder_only_shapes(TOKENS, D, F, LAYERS, N, heads=HEADS, feed_forward=MIXED, norm=an.layer_norm)
    return shapes.random_tree(sizes, rng, 0.4)


def loss_by_hand(params, ids, weight):
    log = []
    options = {"attend": an.windowed(an.attention_fused, 3), "feed_forward": partial(MIXED, record=log)}
    Z, vjp = an.decoder_only(ids[:, :-1], params, HEADS, norm=an.layer_norm, **options)
    loss, loss_vjp = an.cross_entropy(Z, ids[:, 1:])
    dZ = loss_vjp(1.0)
    for entry in log:
        extra, extra_vjp = an.load_balance(entry["scores"], 2)
        z, z_vjp = an.router_z_loss(entry["scores"])
        loss = loss + weight * (extra + 0.1 * z)
        entry["dscores"] = weight * (extra_vjp(1.0) + 0.1 * z_vjp(1.0))
    assert len(log) == LAYERS
    return loss, vjp(dZ)


def loss_by_torch(params, ids, weight):
    log = []
    mixed = partial(at.mixture_of_experts, experts=4, top=2, record=log)
    options = {"attend": at.windowed(at.attention_fused, 3), "feed_forward": mixed}
    Z = at.decoder_only(ids[:, :-1], params, HEADS, norm=at.layer_norm, **options)
    loss = at.cross_entropy(Z, ids[:, 1:])
    return loss + weight * sum(
        at.load_balance(entry["scores"], 2) + 0.1 * at.router_z_loss(entry["scores"]) for entry in log
    )


@pytest.mark.slow
def test_a_model_with_a_window_and_experts_learns_in_both_worlds(rng):
    """With both losses of the router; the same losses step by step."""
    params, ids = model_params(rng), rng.integers(0, TOKENS, (5, N + 1))
    theirs = map_tree(lambda leaf: torch.tensor(leaf, requires_grad=True), params)
    losses = {"numpy": [], "torch": []}
    for _ in range(5):
        loss, grads = loss_by_hand(params, ids, 0.1)
        losses["numpy"].append(float(loss))
        params = map_tree(lambda P, dP: P - 0.5 * dP, params, grads)
        loss = loss_by_torch(theirs, torch.from_numpy(ids), 0.1)
        losses["torch"].append(loss.item())
        loss.backward()
        with torch.no_grad():
            for leaf in flatten(theirs).values():
                leaf -= 0.5 * leaf.grad
                leaf.grad = None
    compare(losses["numpy"], losses["torch"], name="losses", atol=1e-9)
    assert losses["numpy"][-1] < 0.95 * losses["numpy"][0]


def test_the_record_takes_the_gradient_of_the_routers_loss(rng):
    """The balancing loss alone moves the routers, and all before them."""
    params, ids = model_params(rng), rng.integers(0, TOKENS, (5, N + 1))
    with_it, without = (flatten(loss_by_hand(params, ids, weight)[1]) for weight in (0.1, 0.0))
    for key in ("layers.0.feed_forward.router.weight", "layers.1.feed_forward.router.weight", "embeddings.word"):
        assert np.abs(with_it[key] - without[key]).max() > 1e-4
    compare(with_it["layers.1.feed_forward.experts.0.up.weight"], without["layers.1.feed_forward.experts.0.up.weight"])

    def penalised(X, own):
        log = []
        Y, vjp = an.mixture_of_experts(X, own, E, 2, record=log)
        extra, extra_vjp = an.load_balance(log[0]["scores"], 2)

        def both(dy):
            log[0]["dscores"] = extra_vjp(dy)
            return vjp(np.broadcast_to(dy, Y.shape))

        return Y.sum() + extra, both

    own = shapes.random_tree(numbers.mixture_shapes(D, F, E), rng, 0.5)
    check_vjp(penalised, rng.standard_normal((B, N, D)), own, rng=rng)


def test_modules_with_experts(rng):
    """Shapes follow from the part, and it runs as the feed-forward network of a whole model."""
    mixed = partial(at.mixture_of_experts, experts=4, top=1, renormalise=False, expert=at.feed_forward)
    model = at.DecoderOnly(TOKENS, D, HEADS, F, LAYERS, feed_forward=mixed)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    tree = model.tree()
    assert set(tree["layers"]["1"]["feed_forward"]["experts"]) == set("0123")
    compare(model(ids), at.decoder_only(ids, tree, HEADS, feed_forward=mixed), name="module")
    for kind in (at.EncoderLayer, at.DecoderLayer):
        assert "router" in kind(D, HEADS, F, feed_forward=mixed).tree()["feed_forward"]


# Bad input.

ONE = {"router": {"weight": np.ones((D, 2))}, "experts": {str(i): {} for i in range(2)}}
NAN = np.array([[1.0, 2.0], [3.0, np.nan]])
BAD = [
    (
        "dispatch",
        (np.ones((3, 2)), 3),
        {},
        r"top is 3, but there are only 2 experts; each token can be sent to at most",
    ),
    ("top_k_gates", (np.ones((3, 4)), 5), {}, r"top is 5, but there are only 4 experts"),
    ("top_k_gates", (np.ones((3, 4)), 0), {}, r"top is 0; it must be an integer >= 1"),
    ("top_k_gates", (np.ones((3, 4)), 2, 0), {}, r"capacity is 0; it must be an integer >= 1"),
    ("top_k_gates", (NAN, 1), {}, r"S\[1, 1\] is nan; the scores of a router must be finite: look for an overflow"),
    ("load_balance", (NAN,), {}, r"S\[1, 1\] is nan"),
    ("load_balance", (np.ones((0, 3)),), {}, r"S has shape \(0, 3\): its axis -2 is empty; at least one token"),
    ("load_balance", (np.ones((3, 2)), 3), {}, r"top is 3, but there are only 2 experts"),
    ("router_z_loss", (np.array([[np.inf, 1.0]]),), {}, r"S\[0, 0\] is inf; the scores of a router must be finite"),
    ("router_z_loss", (np.ones((0, 3)),), {}, r"at least one token"),
    ("mixture_of_experts", (np.ones((3, D)), ONE, 3), {}, r"params\['router'\] scores 2 experts, but experts is 3"),
    ("mixture_of_experts", (np.ones((3, D)), ONE, 2, 3), {}, r"top is 3, but there are only 2 experts"),
    (
        "mixture_of_experts",
        (np.ones((3, D)), {"router": ONE["router"], "experts": {"0": {}}}, 2),
        {},
        r"params\['experts'\] lacks '1'",
    ),
    ("mixture_of_experts", (np.full((3, D), np.nan), ONE, 2), {}, r"S\[0, 0\] is nan; the scores"),
    ("mixture_of_experts", (np.ones((3, D)), ONE, 2), {"capacity": 1.5}, r"capacity is 1\.5; it must be an integer"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("row", BAD, ids=[f"{i}-{row[0]}" for i, row in enumerate(BAD)])
def test_bad_input_gets_one_clear_line(row, world, as_users_call):
    name, args, options, message = row
    lift = lambda X: map_tree(torch.from_numpy, X) if isinstance(X, np.ndarray | dict) else X  # noqa: E731
    with pytest.raises(ValueError, match=message) as error:
        getattr(world, name)(*(map(lift, args) if world is at else args), **options)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_bad_numbers_get_one_clear_line():
    for arguments, message in (
        ((4, 8, 1, 1.0), r"a capacity factor of 1\.0 leaves each of 8 experts less than one token; raise it, or give"),
        ((64, 8, 9, 1.0), r"top is 9, but there are only 8 experts"),
        ((64, 8, 1, 0.0), r"factor is 0\.0; it must be > 0"),
        ((0, 8, 1, 1.0), r"n is 0; it must be an integer >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            numbers.expert_capacity(*arguments)
    with pytest.raises(ValueError, match="top is 9, but there are only 8"):
        numbers.mixture_parameters(4, 8, 9, 100)
    with pytest.raises(ValueError, match="top is 9, but there are only 8"):
        at.MixtureOfExperts(4, 8, 8, 9)
    assert [numbers.expert_capacity(100, 10, 1, f) for f in (1.1, 0.29, 1.0)] == [11, 2, 10]
    assert numbers.expert_capacity(100, 1, 1, 0.29) == 29  # 0.29 * 100 is 28.999… in floating point
