"""The compiler, the two worlds, whole layers without norms, the language, and bad input."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import programs, shapes
from attnmath.check import compare
from attnmath.torch.modules import ParamTree, from_numpy
from attnmath.tree import flatten

PROGRAMS = {
    "histogram": (programs.histogram("ab", 5), "^abbab"),
    "brackets": (programs.brackets(2, 8), "^(())())("),
    "writer": (programs.writer("ab", 12), "^abb|abb"),
    "backwards": (programs.writer("ab", 12, backwards=True), "^abb|bba"),
}
EACH = pytest.mark.parametrize("name", PROGRAMS)


def parts_of(world):
    return {"join": world.bare_sublayer, "feed_forward": partial(world.feed_forward, activation=world.relu)}


# the language


def test_the_three_words_are_sums_over_places(rng):
    """Against loops."""
    text, values = "abcab", rng.standard_normal(5)
    chosen = programs.select(range(5), text, lambda k, q: text[k] == q and k < 4)
    for i, j in itertools.product(range(5), repeat=2):
        assert chosen[i, j] == (text[i] == text[j] and j < 4)
    want = [np.mean([values[j] for j in range(4) if text[j] == text[i]]) for i in range(5)]
    compare(programs.aggregate(chosen, values), want)
    compare(programs.aggregate(np.zeros((2, 2), bool), [3, 4]), [0.0, 0.0], name="nothing selected")


def test_selectors_say_which_side_is_which():
    below = programs.select(range(4), range(4), lambda k, q: k < q)
    assert programs.selector_width(below).tolist() == [0, 1, 2, 3]


# the compiler


@pytest.mark.claim("eq:compiled-head")
def test_a_head_has_the_scores_that_it_was_given(rng):
    """Two pairs of parts and two moves, against the sums written out and SciPy's softmax."""
    from scipy.special import softmax

    parts = programs.stream(a=2, b=3, c=1, out=4)
    M, W, U, V = (rng.standard_normal(shape) for shape in ((2, 3), (1, 3), (3, 4), (2, 4)))
    own = programs.head(parts, {("a", "b"): M, ("c", "b"): W}, {("b", "out"): U, ("a", "out"): V})
    X = rng.standard_normal((5, 10))
    a, b, c = X[:, :2], X[:, 2:5], X[:, 5:6]
    P = softmax(a @ M @ b.T + c @ W @ b.T, -1)
    want = np.concatenate([np.zeros((5, 6)), P @ (b @ U + a @ V)], -1)
    compare(an.multi_head_attention(X, X, X, own, 1)[0], want, name="the head", atol=1e-12)
    even = programs.head(parts, {}, {("c", "c"): np.eye(1)})
    compare(an.multi_head_attention(X, X, X, even, 1)[0][:, 5], np.full(5, c.mean()), name="no scores", atol=1e-12)


@pytest.mark.claim("eq:compiled-step")
def test_a_network_adds_steps(rng):
    parts = programs.stream(a=2, b=1, out=2)
    read, other = rng.standard_normal(2), rng.standard_normal(1)
    steps = [({"a": read, "b": other}, 0.3, 7.0, parts["out"][1]), ({"b": [1.0]}, -0.1, 3.0, 2 * parts["out"][1])]
    X = rng.standard_normal((50, 5))
    x, y = X[:, :2] @ read + X[:, 2] * other + 0.3, X[:, 2] - 0.1
    want = np.zeros((50, 5))
    want[:, 4] = np.clip(7 * x + 0.5, 0, 1) + 2 * np.clip(3 * y + 0.5, 0, 1)
    compare(an.feed_forward(X, programs.network(parts, steps), an.relu)[0], want, atol=1e-12)
    compare(an.feed_forward(X, programs.network(parts, []), an.relu)[0], np.zeros((50, 5)), name="no step")


def test_parts_do_not_overlap():
    parts = programs.stream(a=2, b=1, c=3)
    compare(np.concatenate(list(parts.values())), np.eye(6))


# the Transformer that runs them


@EACH
def test_both_worlds_run_a_program_alike(name):
    program, text = PROGRAMS[name]
    ids = programs.numbers(program, text)
    other = programs.Program(from_numpy(program.params), program.tokens, program.answers, program.causal, program.parts)
    Z = programs.logits(other, torch.from_numpy(ids), at)
    compare(Z, programs.logits(program, ids), name="torch", atol=1e-12, rtol=1e-10)
    two = programs.logits(program, np.stack([ids, ids]))
    compare(two[1], programs.logits(program, ids), name="two texts at once", atol=1e-12)


@EACH
def test_its_parameters_are_the_keys_of_a_state_dict(name):
    """Of a module with the shapes that the library declares for layers of these parts; strict, so none is left over."""
    program, text = PROGRAMS[name]
    params = program.params
    d, f = params["layers"]["0"]["feed_forward"]["up"]["weight"].shape
    layer = shapes.encoder_layer_shapes(d, f, join=at.bare_sublayer)
    assert set(flatten(params["layers"]["0"])) <= set(flatten(layer))
    module = ParamTree({k: v.shape if not isinstance(v, dict) else _shapes(v) for k, v in params.items()})
    module.load_state_dict(flatten(from_numpy(params)), strict=True)
    ids = torch.from_numpy(programs.numbers(program, text))
    if program.causal:
        tree = from_numpy(params)
        Z = at.decoder_only(ids, tree, 1, **parts_of(at))
        compare(Z, programs.logits(program, ids.numpy()), name="decoder_only", atol=1e-12, rtol=1e-10)
        compare(an.decoder_only(ids.numpy(), params, 1, **parts_of(an))[0], Z, name="NumPy", atol=1e-12, rtol=1e-10)


def _shapes(tree):
    return {k: _shapes(v) if isinstance(v, dict) else v.shape for k, v in tree.items()}


def test_a_program_has_gradients():
    """It is a point in the space of parameters like any other: training could go on from it."""
    program, text = PROGRAMS["brackets"]
    Z, vjp = an.decoder_only(programs.numbers(program, text), program.params, 1, **parts_of(an))
    tree = from_numpy(program.params)
    leaves = {key: leaf.requires_grad_() for key, leaf in flatten(tree).items()}
    at.decoder_only(
        torch.from_numpy(programs.numbers(program, text)), tree, 1, **parts_of(at)
    ).square().sum().backward()
    got = flatten(vjp(2 * Z))
    for key, leaf in leaves.items():
        compare(got[key], leaf.grad, name=key, atol=1e-9, rtol=1e-9)


def test_what_it_answers_has_the_words_of_the_program():
    program, text = PROGRAMS["brackets"]
    assert programs.run(program, text) == [
        "balanced",
        *["open"] * 3,
        "balanced",
        "open",
        "balanced",
        "broken",
        "broken",
    ]
    assert programs.write(PROGRAMS["backwards"][0], "aab") == "baa^"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: programs.histogram("aa", 3), r"letters is 'aa'; expected a string of different characters"),
        (lambda: programs.histogram("", 3), r"letters is ''"),
        (lambda: programs.histogram("a^", 3), r"letters has '\^', which the program uses itself: leave it out"),
        (lambda: programs.histogram("a", 0), r"most is 0; it must be an integer >= 1"),
        (lambda: programs.histogram("a", 3, sharpness=0.0), r"sharpness is 0\.0; it must be > 0"),
        (lambda: programs.brackets(0, 3), r"depth is 0; it must be an integer >= 1"),
        (lambda: programs.brackets(2, -1), r"most is -1; it must be an integer >= 1"),
        (lambda: programs.writer("a|", 3), r"letters has '\|'"),
        (lambda: programs.writer("a", 3, sharpness=(1.0, -1.0)), r"sharpness\[1\] is -1\.0; it must be > 0"),
        (lambda: programs.writer("a", 3, gain=0.0), r"gain is 0\.0; it must be > 0"),
        (lambda: programs.writer("a", 0), r"places is 0; it must be an integer >= 1"),
        (lambda: programs.run(programs.histogram("a", 3), "^ab"), r"text has 'b'; the program knows '\^a'"),
        (lambda: programs.run(programs.histogram("a", 3), "aa"), r"text is 'aa'; the program wants '\^' in front"),
        (lambda: programs.run(programs.histogram("a", 3), "^a^"), r"nowhere else"),
        (lambda: programs.run(programs.writer("a", 3), "^aaa"), r"the text has 4 tokens and the program places for 3"),
        (lambda: programs.write(programs.writer("a", 9), "b"), r"word is 'b'; expected a string of 'a'"),
        (lambda: programs.with_norms(programs.histogram("a", 3), 0.0), r"size is 0\.0; it must be > 0"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("world", [an, at])
def test_a_joint_without_a_norm_takes_none(world):
    X = np.ones((2, 3)) if world is an else torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"without a norm hold 'gain'; expected an empty dict: take join=sublayer"):
        world.bare_sublayer(X, lambda Z: Z, {"gain": np.ones(3)})
