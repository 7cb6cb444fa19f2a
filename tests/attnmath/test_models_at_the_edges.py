"""Whole models where users found them wanting: padding, half precision, empty batches, vmap, others' modules."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.tree import flatten, map_tree, unflatten

pytestmark = pytest.mark.usefixtures("as_users_call")

TOKENS, D, HEADS, F, LAYERS, LENGTH = 11, 12, 3, 17, 2, 7
TREES = {
    "decoder_only": shapes.decoder_only_shapes(TOKENS, D, F, LAYERS, LENGTH, norm=an.layer_norm),
    "transformer": shapes.transformer_shapes(TOKENS, D, F, LAYERS, LENGTH, norm=an.layer_norm),
    "bert": shapes.bert_shapes(TOKENS, LENGTH, 1, D, F, LAYERS),
}


WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def call(world, model, params, ids, **options):
    inputs = (ids, ids) if model == "transformer" else (ids,)
    return getattr(world, model)(*inputs, params, HEADS, **options)


@pytest.fixture
def ids(rng):
    return rng.integers(1, TOKENS, (4, LENGTH))


@pytest.mark.parametrize("model", TREES)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(model, kind, ids, rng):
    """Every model runs under autocast, near its value in float32, and its parameters get finite gradients."""
    params = map_tree(
        lambda P: torch.tensor(P, dtype=torch.float32, requires_grad=True), shapes.random_tree(TREES[model], rng, 0.3)
    )
    text = torch.from_numpy(ids)
    whole = call(at, model, params, text)
    with torch.autocast("cpu", dtype=kind):
        half = call(at, model, params, text)
    error = (half.float() - whole).abs().max() / whole.abs().max()
    assert 1e-6 < error < 0.1, "half precision, and no more than its rounding"
    half.float().square().mean().backward()
    grads = [P.grad for P in flatten(params).values() if P.grad is not None]
    assert len(grads) == len(flatten(params)) and all(torch.isfinite(g).all() for g in grads)


@WORLDS
@pytest.mark.parametrize("model", TREES)
def test_a_batch_of_none(world, model, rng):
    params = shapes.random_tree(TREES[model], rng)
    none = np.zeros((0, LENGTH), int)
    if world is at:
        assert call(at, model, at.from_numpy(params), torch.from_numpy(none)).shape[:2] == (0, LENGTH)
        return
    Y, vjp = call(an, model, params, none)
    assert Y.shape[:2] == (0, LENGTH)
    assert not any(leaf.any() for leaf in flatten(vjp(Y)).values())


@pytest.mark.parametrize("model", TREES)
def test_gradients_of_each_sample(model, ids, rng):
    """``vmap`` over ``grad`` gives what a loop over the batch gives."""
    flat = {name: torch.from_numpy(P) for name, P in flatten(shapes.random_tree(TREES[model], rng, 0.3)).items()}
    text = torch.from_numpy(ids)

    def loss(flat, row):
        return call(at, model, unflatten(flat), row).square().sum()

    grad = torch.func.grad(loss)
    together = torch.func.vmap(grad, in_dims=(None, 0))(flat, text)
    one_by_one = [grad(flat, row) for row in text]
    alone = {name: torch.stack([one[name] for one in one_by_one]) for name in flat}
    compare(together, alone, name="gradients", atol=1e-9, rtol=1e-9)
    weight = alone[next(name for name in alone if name.endswith("query.weight"))]
    assert (weight[0] - weight[1]).abs().max() > 1e-6, "samples differ"


@pytest.mark.parametrize("model", TREES)
def test_shapes_without_values(model, rng):
    """On the meta device a model says what shape it gives, and computes nothing."""
    params = map_tree(lambda shape: torch.empty(shape, device="meta"), TREES[model])
    Y = call(at, model, params, torch.zeros(4, LENGTH, dtype=torch.long, device="meta"))
    assert Y.device.type == "meta" and Y.shape[:2] == (4, LENGTH)


@WORLDS
def test_left_padding(world, ids, rng):
    """Rows of padding that see nothing: refused with the cure, and the cure works."""
    params = shapes.random_tree(TREES["decoder_only"], rng, 0.4)
    tokens = np.arange(LENGTH) >= np.array([0, 2, 1, 3])[:, None]
    lift = (lambda X: X) if world is an else (lambda X: map_tree(torch.from_numpy, X))
    model = partial(world.decoder_only, lift(ids), lift(params), HEADS, lift(tokens))
    with pytest.raises(ValueError, match=r"may attend to no key.*empty_rows='zero'"):
        model()
    Z = model(attend=partial(world.attention_fused, empty_rows="zero"))
    Z = Z[0] if world is an else Z.numpy()
    assert np.isfinite(Z).all()
    other = ids.copy()
    other[~tokens] = 0  # what stands in the padding must not matter to tokens
    again = world.decoder_only(
        lift(other), lift(params), HEADS, lift(tokens), attend=partial(world.attention_fused, empty_rows="zero")
    )
    again = again[0] if world is an else again.numpy()
    compare(again[tokens], Z[tokens], name="tokens", atol=1e-12)
    assert np.abs(again - Z)[~tokens].max() > 1e-3


@WORLDS
def test_a_number_of_heads_may_be_numpys(world, ids, rng):
    params, text = shapes.random_tree(TREES["bert"], rng, 0.4), ids
    if world is at:
        params, text = at.from_numpy(params), torch.from_numpy(ids)
    Y, same = (world.bert(text, params, heads) for heads in (np.int64(HEADS), HEADS))
    Y, same = (Y[0], same[0]) if world is an else (Y, same)
    compare(Y, same, name="bert")
    with pytest.raises(ValueError, match="heads is True"):
        world.bert(text, params, True)


# Modules of PyTorch and transformers.

STACKS = {
    "encoder alone": lambda bias: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 7, 0.0, batch_first=True, bias=bias), 2, enable_nested_tensor=False
    ),
    "decoder alone": lambda bias: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(6, 2, 7, 0.0, batch_first=True, bias=bias), 2
    ),
    "with a norm at the end": lambda bias: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 7, 0.0, batch_first=True, bias=bias),
        2,
        nn.LayerNorm(6, bias=bias),
        enable_nested_tensor=False,
    ),
}


@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no-biases"])
@pytest.mark.parametrize("kind", STACKS)
def test_load_nn_of_a_part(kind, bias, rng):
    torch.manual_seed(0)
    module = STACKS[kind](bias).double()
    with torch.no_grad():
        for P in module.parameters():
            P.copy_(0.5 * torch.randn_like(P))
    X, M = (torch.from_numpy(rng.standard_normal((3, n, 6))) for n in (5, 4))
    relu = {"feed_forward": partial(at.feed_forward, activation=at.relu)}
    params = at.load_nn(module)
    if "decoder" in kind:
        theirs, ours = module(X, M), at.decoder(X, M, params, 2, **relu)
    else:
        theirs, ours = module(X), at.encoder(X, params, 2, **relu)
    compare(ours, theirs, name=kind, atol=1e-10)
    leaves = list(module.parameters())
    got = torch.autograd.grad(ours.square().sum(), leaves)
    want = torch.autograd.grad(theirs.square().sum(), leaves)
    compare(tuple(got), tuple(want), name="gradients", atol=1e-8, rtol=1e-8)


def test_load_nn_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"module is a Linear; expected an nn\.Transformer"):
        at.load_nn(nn.Linear(2, 2))


def test_a_padding_token_learns_no_word_vector():
    """As in `transformers`: its row of the gradient is zero, though the padding is embedded and attended to."""
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=D, num_attention_heads=HEADS, num_hidden_layers=1, intermediate_size=F, vocab_size=TOKENS)
    eager = dict(attn_implementation="eager")
    models = {
        "bert": BertModel(BertConfig(pad_token_id=0, max_position_embeddings=LENGTH, **sizes, **eager), False),
        "llama": LlamaForCausalLM(LlamaConfig(pad_token_id=0, **sizes, **eager)),
        "tied": LlamaForCausalLM(LlamaConfig(pad_token_id=0, tie_word_embeddings=True, **sizes, **eager)),
    }
    text = torch.tensor([[3, 0, 4, 0]])
    for name, model in models.items():
        model = model.double().eval()
        table = model.get_input_embeddings().weight
        out = model(text)
        theirs = out.logits if hasattr(out, "logits") else out.last_hidden_state
        ours = at.load_hf(model)(text)
        compare(ours, theirs, name=name, atol=1e-5)
        cotangent = torch.randn_like(ours)
        want, got = (torch.autograd.grad((cotangent * Y).sum(), table)[0] for Y in (theirs, ours))
        assert want[3].abs().max() > 1e-6
        assert (want[0].abs().max() > 1e-6) == (name == "tied"), "the head of a tied model learns the padding token too"
        compare(got, want, name=f"the word vectors of {name}", atol=1e-5)
