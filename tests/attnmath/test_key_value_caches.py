"""Latent attention equals DeepSeek-V3's; paged, latent and rounded caches against the contiguous one; bad input."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import latent, shapes
from attnmath.cache import KeyValueCache
from attnmath.caches import BlockPool, LatentCache, PagedCache, QuantisedCache
from attnmath.check import compare
from attnmath.tree import flatten
from tests.attnmath.converted import check_unlifted
from tests.attnmath.test_references import Wide, randomised

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def as_world(world, X):
    return torch.from_numpy(X) if world is at else X


def value(result):
    return result[0] if isinstance(result, tuple) else result.detach().numpy()


@pytest.fixture
def lifted(monkeypatch):
    """Float64 where DeepSeek-V3 asks for float32."""
    from transformers import modeling_rope_utils
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3

    for module in (deepseek_v3, modeling_rope_utils):
        monkeypatch.setattr(module, "torch", Wide("torch"))
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda X, dim, dtype=None: softmax(X, dim))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def deepseek(query, yarn):
    """An attention of DeepSeek-V3 with random weights in float64, and its cosines and sines."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3

    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0}
    rope |= {"mscale_all_dim": 1.0, "rope_theta": 50.0}
    config = DeepseekV3Config(
        hidden_size=12,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=query,
        kv_lora_rank=11,
        qk_nope_head_dim=5,
        qk_rope_head_dim=8,
        v_head_dim=7,
        max_position_embeddings=256,
        rope_parameters=rope if yarn else {"rope_type": "default", "rope_theta": 50.0},
    )
    config._attn_implementation = "eager"
    model = randomised(deepseek_v3.DeepseekV3Attention(config, 0))
    return model, deepseek_v3.DeepseekV3RotaryEmbedding(config)


def ours(model, query):
    """The parameters under our names, with gradients that flow back."""
    params = {
        "query": {"weight": (model.q_proj if query is None else model.q_b_proj).weight.T},
        "down": {"weight": model.kv_a_proj_with_mqa.weight.T},
        "norm": {"gain": model.kv_a_layernorm.weight},
        "up": {"weight": model.kv_b_proj.weight.T},
        "output": {"weight": model.o_proj.weight.T},
    }
    if query is not None:
        params |= {
            "query_down": {"weight": model.q_a_proj.weight.T},
            "query_norm": {"gain": model.q_a_layernorm.weight},
        }
    return params


def causal_call(model, rotary, X):
    """Its output for rows that see what came before."""
    n = X.shape[1]
    hidden = torch.zeros(n, n, dtype=torch.float64).masked_fill(~at.causal_mask(n), -torch.inf)[None, None]
    return model(X, rotary(X, torch.arange(n)[None]), hidden)[0]


def turning(world, yarn):
    own = world.rotary_frequencies(8, base=50.0)
    stretched = world.yarn_frequencies(own, 4.0, 64, ramp="index") if yarn else own
    return partial(world.rotary, frequencies=stretched)


BOTH = pytest.mark.parametrize("yarn", [False, True], ids=["plain", "yarn"])
QUERIES = pytest.mark.parametrize("query", [None, 9], ids=["queries", "latent-queries"])


@pytest.mark.slow
@BOTH
@QUERIES
def test_the_attention_of_deepseek_with_its_casts(query, yarn, rng):
    n, k, r = 6, 5, 8
    model, rotary = deepseek(query, yarn)
    X = torch.from_numpy(rng.standard_normal((2, n, 12)))
    scale = (k + r) ** -0.5 * at.yarn_temperature(4.0) ** 2 if yarn else None
    with torch.no_grad():
        want, params = causal_call(model, rotary, X), ours(model, query)
        for world, P in ((at, params), (an, at.to_numpy(params))):
            A, mask = as_world(world, X.numpy()), world.causal_mask(n)
            O = value(world.latent_attention(A, A, A, P, 3, mask, turn=turning(world, yarn), scale=scale))
            check_unlifted("DeepSeek-V3", lambda: want, lambda O=O: torch.from_numpy(O.copy()))


@pytest.mark.slow
@pytest.mark.claim("eq:latent-attention", "eq:latent-absorbed", "eq:latent", "eq:latent-turned")
@BOTH
@QUERIES
def test_the_attention_of_deepseek(query, yarn, lifted, rng):
    n, k, r = 6, 5, 8
    model, rotary = deepseek(query, yarn)
    X = torch.from_numpy(rng.standard_normal((2, n, 12))).requires_grad_()
    want = causal_call(model, rotary, X)
    dO = torch.from_numpy(rng.standard_normal(want.shape))
    names, leaves = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(want, [X, *leaves], dO)
    scale = (k + r) ** -0.5 * at.yarn_temperature(4.0) ** 2 if yarn else None
    params = ours(model, query)
    for absorbed in (False, True):
        options = {"absorbed": absorbed, "scale": scale}

        got = at.latent_attention(X, X, X, params, 3, at.causal_mask(n), turn=turning(at, yarn), **options)
        compare(got, want, name="torch", atol=1e-10, rtol=1e-10)
        back = torch.autograd.grad(got, [X, *leaves], dO, retain_graph=True)
        compare(dict(zip(("X", *names), back, strict=True)), dict(zip(("X", *names), grads, strict=True)), atol=1e-9)
        A, mask = X.detach().numpy(), an.causal_mask(n)
        O, vjp = an.latent_attention(A, A, A, at.to_numpy(params), 3, mask, turn=turning(an, yarn), **options)
        compare(O, want, name="NumPy", atol=1e-10, rtol=1e-10)
        dQ, dK, _, dparams = vjp(dO.numpy())
        compare(dQ + dK, grads[0], name="NumPy dX", atol=1e-9)
        expected = dict(zip(names, grads[1:], strict=True))
        found = flatten(dparams)
        pairs = {
            "query.weight": "q_proj.weight" if query is None else "q_b_proj.weight",
            "output.weight": "o_proj.weight",
        }
        pairs |= {"down.weight": "kv_a_proj_with_mqa.weight", "up.weight": "kv_b_proj.weight"}
        for name, theirs in pairs.items():
            compare(found[name].T, expected[theirs], name=f"NumPy {name}", atol=1e-9)
        compare(found["norm.gain"], expected["kv_a_layernorm.weight"], name="NumPy gain", atol=1e-9)


@WORLDS
@pytest.mark.claim("prop-latent-count")
def test_decoding_from_the_latent(world, rng):
    """Row by row with c + r numbers kept for each token: the rows of the whole text."""
    params = shapes.random_tree(latent.latent_shapes(12, 3, latent=7, rotary=4), rng, 0.5)
    params = at.from_numpy(params) if world is at else params
    X, n = as_world(world, rng.standard_normal((2, 9, 12))), 9
    whole = value(world.latent_attention(X, X, X, params, 3, world.causal_mask(n), turn=world.rotary))
    cache = LatentCache()
    core = world.cached(world.attention_fused, cache)
    for p in range(n):
        row = X[:, p : p + 1]
        with torch.no_grad():
            O = world.latent_attention(row, row, row, params, 3, attend=core, turn=world.rotary, absorbed=True)
        compare(value(O)[:, 0], whole[:, p], name=f"row {p}", atol=1e-11)
    assert cache.length == n
    kept = cache._rows.kept
    assert sum(kept_rows.shape[-1] for kept_rows in kept) == 7 + 4 and kept[0].shape[-3:-1] == (1, n)
    assert latent.sizes(params, 3) == (4, 4, 7, 4)


@WORLDS
def test_latent_attention_goes_into_every_layer(world, rng):
    """It is an `attention` of a layer, with the shapes that it declares."""
    attention = partial(world.latent_attention, turn=world.rotary, absorbed=True)
    described = shapes.of(partial(world.encoder_layer, attention=attention), d=12, f=5, heads=3)
    assert described["attention"]["down"]["weight"] == (12, 16 + 2)
    params = shapes.random_tree(described, rng, 0.4)
    X = rng.standard_normal((2, 5, 12))
    given = at.from_numpy(params) if world is at else params
    Y = value(world.encoder_layer(as_world(world, X), given, 3, attention=attention))
    plain = an.encoder_layer(X, params, 3, attention=partial(an.latent_attention, turn=an.rotary))[0]
    compare(Y, plain, atol=1e-10)


@WORLDS
@pytest.mark.claim("eq:quantised", "eq:dequantised")
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_rounding_is_to_the_nearest_level(world, bits, axis, rng):
    X = rng.standard_normal((3, 5, 7)) * np.exp(rng.standard_normal((3, 5, 7)))
    Z, low, step = world.quantised(as_world(world, X), bits, axis=axis)
    levels = np.moveaxis(np.linspace(X.min(axis, keepdims=True), X.max(axis, keepdims=True), 2**bits), 0, -1)
    nearest = np.abs(X[..., None] - levels).min(-1)
    got = np.asarray(world.dequantised(Z, low, step))
    compare(abs(got - X), nearest, name="distance to the nearest level", atol=1e-12)
    assert int(np.asarray(Z).max()) == 2**bits - 1 and str(Z.dtype).endswith("uint8")


@WORLDS
def test_what_is_constant_stays(world):
    X = as_world(world, np.full((2, 3), 0.7))
    compare(world.dequantised(*world.quantised(X, 2)), X)


@WORLDS
@pytest.mark.parametrize("pieces", [(10,), (1,) * 10, (3, 4, 3)])
def test_a_rounded_cache_keeps_groups_of_keys_and_single_values(world, pieces, rng):
    K, V = rng.standard_normal((2, 3, 10, 4)), rng.standard_normal((2, 3, 10, 5))
    cache, end = QuantisedCache(world, bits=3, group=4), 0
    for n in pieces:
        end += n
        got = cache.append(*(as_world(world, X[..., end - n : end, :].copy()) for X in (K, V)))
        whole = end - end % 4  # rows of complete groups
        rounded = [an.dequantised(*an.quantised(K[..., i : i + 4, :], 3, axis=-2)) for i in range(0, whole, 4)]
        compare(got[0], np.concatenate([*rounded, K[..., whole:end, :]], -2), name=f"keys after {end}")
        compare(got[1], an.dequantised(*an.quantised(V[..., :end, :], 3)), name=f"values after {end}")
        assert cache.length == end


@WORLDS
@pytest.mark.claim("prop-paged-waste")
@pytest.mark.parametrize("size", [1, 3, 4, 16])
def test_a_paged_cache_equals_the_contiguous_one(world, size, rng):
    """Three texts grow in turns, so that their blocks interleave; every bit is the same; at most size - 1 rows wait."""
    pool = BlockPool(size, 40)
    texts = [(PagedCache(pool), KeyValueCache()) for _ in range(3)]
    for turn in range(5):
        for i, pair in enumerate(texts):
            K, V = (as_world(world, rng.standard_normal((2, 1 + (turn + i) % 3, w))) for w in (4, 5))
            got, want = (cache.append(K, V) for cache in pair)
            for ours_, theirs in zip(got, want, strict=True):
                np.testing.assert_array_equal(np.asarray(ours_), np.asarray(theirs))
    for cache, plain in texts:
        assert cache.length == plain.length and 0 <= len(cache.table) * size - cache.length <= size - 1
    if size == 3:
        assert any(
            sorted(cache.table) != list(range(cache.table[0], cache.table[0] + len(cache.table))) for cache, _ in texts
        )
    used = sum(len(cache.table) for cache, _ in texts)
    assert len(pool.free) == 40 - used
    for cache, _ in texts:
        cache.release()
    assert sorted(pool.free) == list(range(40))


@WORLDS
def test_forks_share_what_they_have_in_common(world, rng):
    pool = BlockPool(4, 10)
    first = PagedCache(pool)
    K, V = (as_world(world, rng.standard_normal((2, 6, w))) for w in (4, 5))
    first.append(K, V)
    second = first.fork()
    assert len(pool.free) == 8
    new = [as_world(world, rng.standard_normal((2, 1, 4))) for _ in range(2)]
    got = [cache.append(row, V[:, :1])[0] for cache, row in zip((first, second), new, strict=True)]
    assert len(pool.free) == 7 and first.table[0] == second.table[0] and first.table[1] != second.table[1]
    for seen, row in zip(got, new, strict=True):
        compare(seen, np.concatenate([np.asarray(K), np.asarray(row)], 1))
    compare(first.kept[0], got[0], name="the first text, after the second went on")
    first.release()
    assert len(pool.free) == 8 and second.length == 7
    compare(second.kept[0], got[1], name="the second text, after the first has gone")


@WORLDS
def test_paged_and_rounded_caches_go_into_a_model(world, rng):
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 17, layers=1, heads=3), rng, 0.3)
    params = at.from_numpy(params) if world is at else params
    ids = as_world(world, rng.integers(0, 11, 9))
    whole = value(world.decoder_only(ids, params, 3))
    made = {"paged": lambda: PagedCache(BlockPool(2, 9)), "rounded": lambda: QuantisedCache(world, 8, 4)}
    for name, make in made.items():
        cache = {"layers": {"0": {"attention": make()}}}
        with torch.no_grad():
            rows = [value(world.decoder_only(ids[p : p + 1], params, 3, cache=cache)) for p in range(9)]
        off = abs(np.concatenate(rows, -2) - whole).max()
        assert off < 1e-11 if name == "paged" else 1e-8 < off < 0.05, name


@WORLDS
def test_sequences_are_selected_as_a_beam_search_does(world, rng):
    K, V = (as_world(world, rng.standard_normal((3, 2, 5, w))) for w in (4, 3))
    for cache, whole in ((QuantisedCache(world, 8, 2), V), (LatentCache(), K[..., :3])):
        before = [np.asarray(X) for X in cache.append(K, whole)]
        cache.select([2, 0, 0])
        for X, old in zip(cache.kept, before, strict=True):
            compare(X, old[[2, 0, 0]])
    with pytest.raises(ValueError, match=r"a paged cache holds one text .* fork\(\) it"):
        PagedCache(BlockPool(2, 3)).select([0])


def test_bad_caches(rng):
    rows = rng.standard_normal((2, 1, 4))
    pool = BlockPool(2, 1)
    cache = PagedCache(pool)
    cache.append(rows, rows)
    with pytest.raises(ValueError, match=r"the cache holds rows of shape .*but the new ones have"):
        PagedCache(pool).append(rows[:1], rows[:1])
    with pytest.raises(ValueError, match=r"a paged cache holds one text: give \(g, n, k\)"):
        cache.append(rows[None], rows[None])
    cache.append(rows, rows)
    with pytest.raises(ValueError, match="all 1 blocks are in use: release a text"):
        cache.append(rows, rows)
    for make, message in (
        (lambda: BlockPool(0, 3), "size is 0; it must be an integer"),
        (lambda: BlockPool(3, 0), "count is 0; it must be an integer"),
        (lambda: QuantisedCache(an, 4, 0), "group is 0; it must be an integer"),
        (lambda: QuantisedCache(an, 9, 2).append(rows, rows), "bits is 9; expected one of 1, 2, 3"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    wanted = torch.ones(2, 1, 4, requires_grad=True)
    with pytest.raises(ValueError, match="a cache is for inference"):
        QuantisedCache(at).append(wanted, wanted)


def params_with(**changed):
    params = shapes.random_tree(latent.latent_shapes(8, 2, query=5), np.random.default_rng(1))
    params |= changed
    return {name: leaf for name, leaf in params.items() if leaf is not None}


X = np.zeros
BAD = [
    ("quantised", (X((3, 4)), 0), {}, r"bits is 0; expected one of 1, 2"),
    ("quantised", (X((3, 4)),), {"axis": 0}, r"axis is 0; expected one of -1, -2"),
    ("quantised", (X((3, 0)),), {}, r"X has shape \(3, 0\): its axis -1 is empty"),
    ("quantised", (X((3, 4), int),), {}, r"X has dtype (torch\.)?int64"),
    ("dequantised", (X((3, 4), np.uint8), X((3, 1), int), X((3, 1))), {}, r"low has dtype (torch\.)?int64"),
    ("latent_attention", (X((3, 8)),) * 3 + (params_with(up=None), 2), {}, r"params lacks 'up'"),
    (
        "latent_attention",
        (X((3, 8)),) * 3 + (params_with(query_norm=None), 2),
        {},
        r"'query_norm' together, or neither",
    ),
    (
        "latent_attention",
        (X((3, 8)),) * 3 + (params_with(up={"weight": X((16, 16)), "bias": X(16)}), 2),
        {},
        r"params\['up'\] has a bias, which the absorbed form",
    ),
    ("latent_attention", (X((3, 8)),) * 3 + (params_with(norm={"gain": X(15)}), 2), {}, r"do not fit together for 2"),
    (
        "latent_attention",
        (X((3, 8)),) * 3 + (params_with(), 3),
        {},
        r"heads is 3; .* divides the width 16 of params\['up'\]",
    ),
    ("latent_attention", (X((3, 7)),) * 3 + (params_with(), 2), {}, r"expected \(i, o\) with i = 7"),
]


@WORLDS
@pytest.mark.parametrize(("component", "args", "options", "message"), BAD, ids=lambda value: str(value)[:20])
def test_bad_input(world, component, args, options, message):
    from jaxtyping import config

    def convert(X):
        if isinstance(X, dict):
            return at.from_numpy(X) if world is at else X
        return as_world(world, X) if isinstance(X, np.ndarray) else X

    config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=message):
            getattr(world, component)(*map(convert, args), **options)
    finally:
        config.update("jaxtyping_disable", False)
