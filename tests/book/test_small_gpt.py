"""The model that grows from page to page: every step runs alone, is the library's function, and stands on its page."""

import re
import runpy
import subprocess
import sys
from functools import partial
from itertools import pairwise

import nbformat
import pytest
import torch

import attnmath.torch as at
from fingerprint import ROOT

FOLDER = ROOT / "chapters" / "small_gpt"
STEPS = sorted(FOLDER.glob("step*.py"))
BOX = re.compile(r"^```\{small-gpt\} (\d+)\n\S.+?\n```$", re.M | re.S)
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
X = torch.linspace(-2, 3, 24).sin().view(2, 3, 4)


def names(number):
    """What a step defines, without what it prints."""
    return runpy.run_path(str(STEPS[number - 1]), run_name="imported")


def affine(module):
    return {"weight": module.weight.T, "bias": module.bias}


def norm(module):
    return {"gain": module.weight, "bias": module.bias}


def attention_params(module):
    return {name: affine(getattr(module, name)) for name in ("query", "key", "value", "output")}


def block_params(module):
    return {
        "attention": attention_params(module.attention),
        "attention_norm": norm(module.norm1),
        "feed_forward": {"up": affine(module.up), "down": affine(module.down)},
        "feed_forward_norm": norm(module.norm2),
    }


def scattered(module):
    """The module with weights that are neither 0 nor 1, biases and gains too."""
    torch.manual_seed(7)
    for W in module.parameters():
        torch.nn.init.normal_(W, 0.3)
    return module


def same(got, want):
    """Whether both are the same numbers, and not all of them small."""
    return bool(got.abs().max() > 0.1) and torch.allclose(got, want, atol=1e-5)


PRE = partial(at.sublayer, norm_first=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, len(STEPS) + 1))
def test_a_step_runs_alone_and_says_something(number):
    done = subprocess.run([sys.executable, STEPS[number - 1]], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-500:]


def test_one_head_is_the_librarys():
    Q, K, V = X, X.flip(1), X * 2
    assert same(names(1)["attention"](Q, K, V), at.attention(Q, K, V))
    assert same(names(3)["attention"](Q, K, V, CAUSAL), at.attention(Q, K, V, CAUSAL))
    for number, mask in ((2, True), (3, CAUSAL)):
        one = scattered(names(number)["SelfAttention"](4))
        assert same(one(X), at.attention(one.query(X), one.key(X), one.value(X), mask))


@pytest.mark.parametrize("number", range(4, len(STEPS) + 1))
def test_several_heads_are_the_librarys(number):
    layer = scattered(names(number)["SelfAttention"](4, heads=2))
    assert same(layer(X), at.multi_head_attention(X, X, X, attention_params(layer), 2, CAUSAL))


def test_the_first_block_is_the_librarys():
    first = scattered(names(5)["Block"](4, heads=2))
    f = partial(at.multi_head_attention, heads=2, mask=CAUSAL)
    want = PRE(X, lambda Z: f(Z, Z, Z, attention_params(first.attention)), norm(first.norm1))
    assert same(first(X), want)


@pytest.mark.parametrize("number", range(6, len(STEPS) + 1))
def test_a_block_is_the_librarys(number):
    whole = scattered(names(number)["Block"](4, heads=2))
    assert same(whole(X), at.encoder_layer(X, block_params(whole), 2, CAUSAL, join=PRE))


@pytest.mark.parametrize("number", range(7, len(STEPS) + 1))
def test_an_embedding_is_the_librarys(number):
    ids, embedding = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]]), scattered(names(number)["Embedding"](11, 6, 4))
    tables = {"word": embedding.word.weight, "position": embedding.place.weight}
    assert same(embedding(ids), at.token_embedding(ids, tables))


@pytest.mark.parametrize("number", range(8, len(STEPS) + 1))
def test_the_gpt_is_the_librarys(number):
    ids = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    model = scattered(names(number)["GPT"](tokens=11, length=6, d=4, heads=2))
    own = model.embedding
    params = {
        "embeddings": {"word": own.word.weight, "position": own.place.weight},
        "layers": {str(i): block_params(block) for i, block in enumerate(model.blocks)},
        "norm": norm(model.norm),
        "head": affine(model.out),
    }
    assert same(model(ids), at.decoder_only(ids, params, 2, norm=at.layer_norm, join=PRE))


@pytest.mark.parametrize("number", range(9, len(STEPS) + 1))
def test_the_loss_is_that_of_the_second_half(number):
    step = names(number)
    torch.manual_seed(1)
    ids, model = step["examples"](6), scattered(step["GPT"](tokens=11, length=10))
    assert (ids[:, 5] == 10).all() and torch.equal(ids[:, :5], ids[:, 6:].flip(1)) and len(ids[:, :5].unique()) > 5
    logits, loss = model(ids[:, :-1]), step["loss_of"](model, ids)
    assert same(loss, at.cross_entropy(logits[:, 5:], ids[:, 6:]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_to_write_backwards_and_only_with_places(seed):
    step = names(len(STEPS))
    torch.manual_seed(seed)
    model = step["GPT"](tokens=11, length=10)
    step["train"](model, steps=201)
    new = step["examples"](1000)
    assert (step["write"](model, new[:, :6], 5) == new).all(dim=1).float().mean() > 0.98
    with torch.no_grad():
        model.embedding.place.weight.zero_()
    assert (step["write"](model, new[:, :6], 5) == new).all(dim=1).float().mean() < 0.02


def test_each_step_stands_on_one_page_and_the_first_page_says_where():
    told = dict(re.findall(r"^\| (\d+) \|.+\{doc\}`.*?</(chapters/\S+)>` \|$", (ROOT / "intro.md").read_text(), re.M))
    found = {}
    for path in sorted((ROOT / "chapters").glob("*/*.ipynb")):
        for cell in nbformat.read(path, 4).cells:
            for number in BOX.findall(cell.source if cell.cell_type == "markdown" else ""):
                assert number not in found
                found[number] = path.relative_to(ROOT).with_suffix("").as_posix()
    assert found == told and sorted(map(int, found)) == list(range(1, len(STEPS) + 1))


def test_lines_are_marked_that_are_new(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    from growing import changed, steps, title

    assert steps(ROOT) == STEPS and title(STEPS[3]) == "several heads"
    assert changed('"""1"""\na\nb\nc\n', '"""2"""\na\nB\n\nc\nd\n') == [3, 6]
    for before, after in pairwise(STEPS):
        assert 0 < len(changed(before.read_text(), after.read_text())) < 35
