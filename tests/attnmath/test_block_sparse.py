"""Block-sparse attention: references that nobody here wrote, the work it does, bad input, and models around it."""

import types
from functools import partial

import numpy as np
import pytest
import torch
from jaxtyping import config
from torch import nn

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import layouts as L
from attnmath import shapes
from attnmath.check import compare
from attnmath.count import bytes_held
from attnmath.numpy.block_sparse import strips
from attnmath.torch.block_sparse import gathers
from attnmath.tree import map_tree
from tests.attnmath.converted import check_unlifted
from tests.attnmath.flex import flex_both_ways

HEADS, WIDTH, BLOCK = 2, 12, 4


class Wide(types.ModuleType):
    """torch with float64 where a module asks for float32."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def ours(module, X, layout, size=BLOCK):
    """Our two worlds with the projections of a module of `transformers`."""
    X, layout = torch.from_numpy(X), L.as_layout(layout, size)
    with torch.no_grad():
        Q, K, V = (at.split_heads(getattr(module, name)(X), HEADS) for name in ("query", "key", "value"))
        theirs = at.merge_heads(at.block_sparse_attention(Q, K, V, layout=layout, size=size))
    O, _ = an.block_sparse_attention(*(H.numpy() for H in (Q, K, V)), layout=layout, size=size)
    compare(at.merge_heads(torch.from_numpy(O.copy())), theirs, name="the two worlds", atol=1e-12)
    return theirs


def longformer_call(X, w, tokens):
    """Their layer, its global projections set to the local ones since ours has one set of three, and its output."""
    from transformers import LongformerConfig
    from transformers.models.longformer import modeling_longformer as module

    options = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "attention_window": [2 * w]}
    torch.manual_seed(4)
    layer = module.LongformerSelfAttention(LongformerConfig(**options), 0).double().eval()
    for name in ("query", "key", "value"):
        getattr(layer, f"{name}_global").load_state_dict(getattr(layer, name).state_dict())
    chosen = torch.zeros(X.shape[:2], dtype=torch.bool)
    chosen[:, tokens] = True
    theirs = layer(
        torch.from_numpy(X),
        attention_mask=torch.where(chosen, 10000.0, 0.0).double(),
        is_index_masked=torch.zeros(X.shape[:2], dtype=torch.bool),
        is_index_global_attn=chosen,
        is_global_attn=True,
    )[0]
    return layer, theirs


TOKENS = pytest.mark.parametrize("tokens", [[0], [0, 1, 11], [5, 23]])


@pytest.mark.slow
@TOKENS
def test_longformer_is_a_window_with_global_tokens(tokens, rng, monkeypatch):
    from transformers.models.longformer import modeling_longformer as module

    monkeypatch.setattr(module, "torch", Wide("torch"))
    w, X = 3, rng.standard_normal((2, 24, WIDTH))
    layer, theirs = longformer_call(X, w, tokens)
    compare(ours(layer, X, L.longformer(w, tokens)), theirs, atol=1e-10)
    wrong = ours(layer, X, L.longformer(w + 1, tokens))
    assert (wrong - theirs).abs().max() > 1e-3


@pytest.mark.slow
@TOKENS
def test_longformer_with_its_casts(tokens, rng):
    X = rng.standard_normal((2, 24, WIDTH))
    layer, theirs = longformer_call(X, 3, tokens)
    check_unlifted("Longformer", lambda: theirs, lambda: ours(layer, X, L.longformer(3, tokens)))


def bigbird_layer(n, random):
    from transformers import BigBirdConfig
    from transformers.models.big_bird import modeling_big_bird as module

    settings = BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=BLOCK, num_random_blocks=random,
        max_position_embeddings=n, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return module.BigBirdBlockSparseAttention(settings, seed=1).double()


def bigbird_call(layer, X):
    """What `BigBirdModel.create_masks_for_block_sparse_attn` makes of a text without padding."""
    n = X.shape[1]
    blocked = torch.ones(len(X), n // BLOCK, BLOCK, dtype=torch.float64)
    band = torch.ones(len(X), 1, n // BLOCK - 4, BLOCK, 3 * BLOCK, dtype=torch.float64)
    rows, columns = torch.ones(len(X), 1, n, 1).double(), torch.ones(len(X), 1, 1, n).double()
    with torch.no_grad():
        return layer(torch.from_numpy(X), band, rows, columns, blocked, blocked)[0]


@pytest.mark.slow
def test_bigbird_is_a_window_with_ends_and_random_blocks(rng, monkeypatch):
    """Both are given one draw, in which no block occurs twice; their layer has no cast that would have to be lifted."""
    count, random = 10, 2
    pattern = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) <= 1
    pattern[[0, -1]] = pattern[:, [0, -1]] = True
    pattern[1, 2] = pattern[-2, -3] = True  # theirs lets the second row see the first three, the last but one the last
    drawn = np.array([rng.permutation(np.flatnonzero(~row))[:random] for row in pattern[1:-1]])
    layer = bigbird_layer(count * BLOCK, random)
    monkeypatch.setattr(type(layer), "_bigbird_block_rand_mask_with_head", lambda self, **k: [drawn] * HEADS)
    np.put_along_axis(pattern[1:-1], drawn, True, 1)
    X = rng.standard_normal((2, count * BLOCK, WIDTH))
    theirs = bigbird_call(layer, X)
    compare(ours(layer, X, pattern), theirs, atol=1e-10)
    pattern[4] = True
    assert (ours(layer, X, pattern) - theirs).abs().max() > 1e-3


@pytest.mark.slow
def test_bigbird_of_transformers_has_no_random_blocks_in_inference_but_counts_the_first_again(rng):
    """In `eval` mode all random blocks are block 0: its keys count 1 + random times, as a bias of log(1 + random)."""
    count, random = 10, 2
    layer = bigbird_layer(count * BLOCK, random).eval()
    pattern = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) <= 1
    pattern[[0, -1]] = pattern[:, [0, -1]] = True
    times = np.where(pattern, 1.0, 0.0)
    times[1:-1, 0] += random
    with np.errstate(divide="ignore"):
        bias = np.log(times.repeat(BLOCK, 0).repeat(BLOCK, 1))
    X = rng.standard_normal((2, count * BLOCK, WIDTH))
    theirs = bigbird_call(layer, X)
    x = torch.from_numpy(X)
    with torch.no_grad():
        Q, K, V = (at.split_heads(getattr(layer, name)(x), HEADS) for name in ("query", "key", "value"))
        compare(at.merge_heads(at.attention(Q, K, V, bias=torch.from_numpy(bias))), theirs, atol=1e-10)
    assert (ours(layer, X, pattern) - theirs).abs().max() > 1e-3, "without the extra counts it is another function"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("layout", [L.window(9, causal=True), L.sinks(3, 5), L.fixed(8, 2)], ids=repr)
def test_flex_attention_says_the_same(layout, rng):
    """PyTorch's own attention with a rule, run without its compiler, and its own backward."""
    n = 128
    Q, K, V, dO = (rng.standard_normal((1, HEADS, n, 6)) for _ in range(4))
    want = flex_both_ways(Q, K, V, dO, layout.mask(n))
    O, vjp = an.block_sparse_attention(Q, K, V, layout=layout, size=16)
    compare((O, *vjp(dO)), want, name="NumPy", atol=1e-10)
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, K, V)]
    O = at.block_sparse_attention(*leaves, layout=layout, size=16)
    compare((O, *torch.autograd.grad(O, leaves, torch.from_numpy(dO))), want, name="torch", atol=1e-10)


@pytest.mark.parametrize("layout", [L.window(2), L.strided(4), L.bigbird(3), L.longformer(1, 2)], ids=repr)
def test_tiles_that_nobody_sees_are_never_read(layout, rng):
    """Keys and values of a strip's unseen tiles are not a number, and neither pass meets them."""
    n, size = 30, 3
    mask = layout.mask(n)
    unseen = np.flatnonzero((layout.tiles(n, n, size) == 0)[5])
    assert len(unseen)
    Q, K, V = rng.standard_normal((3, n, 5))
    columns = (unseen[:, None] * size + np.arange(size)).ravel()
    rows = slice(5 * size, 6 * size)
    O, vjp = an.block_sparse_attention(Q, K, V, layout=layout, size=size)
    dO = np.zeros((n, 5))
    dO[rows] = rng.standard_normal((size, 5))
    _, dK, dV = vjp(dO)
    assert not dK[columns].any() and not dV[columns].any() and dV.any()
    K[columns] = V[columns] = np.nan
    spoiled, _ = an.block_sparse_attention(Q, K, V, layout=layout, size=size)
    compare(spoiled[rows], O[rows], atol=0.0, rtol=0.0)
    twin = at.block_sparse_attention(*map(torch.from_numpy, (Q, K, V)), layout=layout, size=size)
    compare(twin[rows], O[rows], atol=1e-12)
    assert np.array_equal(np.isnan(spoiled).any(1), (layout.tiles(n, n, size) > 0)[:, unseen].any(1).repeat(size))
    assert not mask[rows][:, columns].any()


@pytest.mark.parametrize("layout", [L.causal(), L.strided(8), L.bigbird(8), L.longformer(8, 3)], ids=repr)
def test_the_work_is_that_of_the_tiles(layout):
    """In both worlds each strip meets its own tiles, once each; strips with as many stand in one piece."""
    n, size = 256, 8
    tiles = layout.tiles(n, n, size) > 0
    assert sum(columns.size for _, columns, _ in strips(layout, n, n, size)) == tiles.sum()
    pieces = gathers(layout, n, n, size)
    assert len(pieces) == len(np.unique(tiles.sum(1)))
    assert sum(columns.size for _, columns, _ in pieces) == tiles.sum()
    assert sorted(np.concatenate([rows for rows, _, _ in pieces])) == list(range(n // size))
    for rows, columns, allowed in pieces:
        own = np.zeros((len(rows), n // size), bool)
        np.put_along_axis(own, columns, True, 1)
        assert np.array_equal(own, tiles[rows])
        assert allowed is None or (allowed.shape == (len(rows), size, columns.shape[1] * size) and not allowed.all())


def test_the_backward_pass_keeps_no_weights(rng):
    """What it holds grows with n times the width, not with the pairs."""
    n = 512
    Q, K, V = rng.standard_normal((3, n, 4))
    assert bytes_held(an.block_sparse_attention(Q, K, V, layout=np.ones((8, 8), bool))[1]) < n * n * 8 / 8


BAD = [
    ({"layout": L.window(1), "size": 0}, "size is 0; it must be an integer >= 1"),
    ({"layout": "window"}, "layout is a str; expected one of attnmath.layouts, or booleans for whole tiles"),
    ({"layout": np.ones((2, 2), bool), "size": 2}, r"pattern has shape \(2, 2\), but 6 queries and 8 keys are 3 by 4"),
    ({"layout": L.window(1), "empty_rows": "nan"}, "empty_rows is 'nan'; expected one of 'error', 'zero'"),
    ({"layout": L.window(1), "scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ({"layout": L.summaries(4) & L.causal(), "size": 2}, r"row \(1, 0\) may attend to no key|row \(0, 0\) may attend"),
    ({"layout": L.window(0), "mask": np.arange(8) != 4}, r"row \(0, 2\) may attend to no key"),
    ({"layout": L.window(1), "mask": np.ones((6, 7), bool)}, r"mask has shape \(6, 7\), which does not broadcast"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_bad_input_is_refused(world, options, words, rng):
    config.update("jaxtyping_disable", True)
    n = 6 if "summaries" not in repr(options["layout"]) else 8
    Q, K, V = rng.standard_normal((2, n, 3)), rng.standard_normal((2, 8, 3)), rng.standard_normal((2, 8, 3))
    lift = torch.from_numpy if world is at else np.asarray
    given = {k: lift(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    with pytest.raises(ValueError, match=words) as told:
        world.block_sparse_attention(lift(Q), lift(K), lift(V), **given)
    config.update("jaxtyping_disable", False)
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_a_decoder_takes_dense_and_banded_layers_in_turn(rng):
    """GPT-3's layers: a list of cores, and the same model with masks written down."""
    n, d, layers = 20, 12, 4
    params = shapes.random_tree(shapes.decoder_only_shapes(11, d, 16, layers, n, heads=HEADS), rng, 0.4)
    ids = rng.integers(0, 11, (2, n))
    band = L.window(3, causal=True)

    def cores(world):
        mask = band.mask(n) if world is an else torch.from_numpy(band.mask(n))
        sparse = partial(world.block_sparse_attention, layout=band, size=4)
        return [world.attention_fused, sparse] * 2, [world.attention, lambda *a, **k: world.attention(*a[:3], mask)] * 2

    (sparse, dense), (twin, _) = cores(an), cores(at)
    Y, vjp = an.decoder_only(ids, params, HEADS, attend=sparse)
    Z, dense_vjp = an.decoder_only(ids, params, HEADS, attend=dense)
    dY = rng.standard_normal(Y.shape)
    compare(Y, Z, atol=1e-11)
    compare(vjp(dY), dense_vjp(dY), atol=1e-9)
    tensors = map_tree(torch.from_numpy, params)
    compare(at.decoder_only(torch.from_numpy(ids), tensors, HEADS, attend=twin), Y, atol=1e-10)
    assert np.abs(an.decoder_only(ids, params, HEADS)[0] - Y).max() > 1e-3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap calls torch's kernel once for each entry
def test_it_compiles_and_maps(rng):
    """Under torch.func.vmap and on the meta device, where no value can be looked at."""
    Q, K, V = (torch.from_numpy(rng.standard_normal((2, 10, 4))) for _ in range(3))
    f = partial(at.block_sparse_attention, layout=L.longformer(1, 1), size=3)
    compare(torch.func.vmap(f)(Q, K, V), f(Q, K, V), atol=1e-12)
    assert f(*(X.to("meta") for X in (Q, K, V))).shape == (2, 10, 4)
    assert f(*(nn.Parameter(X) for X in (Q, K, V))).requires_grad
