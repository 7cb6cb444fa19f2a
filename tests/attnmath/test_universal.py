"""Stacks that are written down: a step, a table, merged layers, rounded numbers, and what is refused."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
from attnmath import universal as U
from attnmath.check import compare
from attnmath.universal import ANSWER, pair, run, shallow, star


def names(x, y):
    return x, y


@pytest.mark.claim("eq:universal-step")
def test_a_step_is_a_ramp_in_one_channel_alone(rng):
    Z = rng.normal(0, 2, (200, 4))
    _, params = U.step(2, 0.7, 0.25, {0: 3.0, 3: -1.0}, 4)
    F, _ = an.feed_forward(Z, params, an.relu)
    ramp = np.clip((Z[:, 2] - 0.7) / 0.25 + 1, 0, 1)
    compare(F, ramp[:, None] * np.array([3.0, 0, 0, -1.0]), atol=1e-12)
    assert ((0 < ramp) & (ramp < 1)).any() and (ramp == 0).any() and (ramp == 1).any()


@pytest.mark.claim("eq:universal-table")
def test_a_table_against_interpolation(rng):
    """Flat within 1/4 of each number, a straight line between, by NumPy's own interpolation."""
    values = rng.normal(0, 1, 9)
    places = np.concatenate([[j - 0.25, j + 0.25] for j in range(9)])
    u = rng.uniform(-2, 10, 500)
    Z = np.stack([u, np.zeros(500)], -1)
    F, _ = an.feed_forward(Z, U.merge(U.table(values, 2))[1], an.relu)
    compare(F[:, 1], np.interp(u, places, np.repeat(values, 2)), atol=1e-12)
    compare(F[:, 0], np.zeros(500), name="nothing else is written")


@pytest.mark.claim("eq:universal-table")
def test_a_table_of_rows_at_places_of_its_own(rng):
    """Flat within 1/4 of each place, also where places are farther apart than 1."""
    values, places = rng.normal(0, 1, (5, 2)), np.array([0.0, 1.0, 3.5, 6.0, 7.25])
    u = np.concatenate([places, places - 0.25, places + 0.25, [2.0]])
    Z = np.concatenate([u[:, None], np.zeros((len(u), 2))], -1)
    F, _ = an.feed_forward(Z, U.merge(U.table(values, 3, places))[1], an.relu)
    compare(F[:, 1:], np.concatenate([values, values, values, values[1:2]]), atol=1e-12)


@pytest.mark.parametrize("build", [pair, lambda f, cells, band: star(f, 2, cells, band=band)])
def test_merged_layers_are_the_same_function(build, rng):
    stack = build(lambda x, y: (np.cos(x + 3 * y), x - y), 4, band=0.3)
    flat, X = shallow(stack), rng.random((200, 2))
    assert len(flat.layers) in (3, 5) and (flat.mask is stack.mask or np.array_equal(flat.mask, stack.mask))
    compare(run(flat, X), run(stack, X), name="all channels", atol=1e-9)
    compare(run(flat, X, layers=flat.ready), run(stack, X, layers=stack.ready), name="at the table", atol=1e-9)


def test_centres_are_the_digits():
    X = U.centres(3, 4)
    for s in (0, 5, 63):
        compare(X[s], [(s // 4**i % 4 + 0.5) / 4 for i in range(3)])
    assert len(np.unique(X, axis=0)) == 64


@pytest.mark.parametrize(("bits", "dtype"), [(8, torch.bfloat16), (11, torch.float16), (24, torch.float32)])
def test_rounding_is_that_of_torch(bits, dtype, rng):
    X = np.concatenate([rng.normal(0, 1, 500), rng.uniform(1, 3e4, 500), [0.0, 1.0, -2.5, 257.0, 2049.0, 0.1]])
    compare(U.rounded(X, bits), torch.tensor(X).to(dtype).double().numpy(), atol=0.0, rtol=0.0)


def test_the_star_hides_all_but_the_hub():
    """With a mask, a change of token 2 reaches token 1 after two layers of attention and not after one."""
    stack = star(lambda x, y, z: (x, y, z), 3, 3)
    X = np.array([[0.1, 0.5, 0.1], [0.1, 0.5, 0.9]])
    kinds = [kind for kind, _ in stack.layers]
    first, second = (i for i, kind in enumerate(kinds) if kind == "attention")
    before, after = (run(stack, X, layers=i + 1)[:, 1] for i in (first, second))
    assert (before[0] == before[1]).all() and (after[0] != after[1]).any()


def test_storing_is_done_after_every_layer():
    seen = []
    stack = pair(names, 2)
    run(stack, [0.3, 0.4], store=lambda Z: seen.append(Z) or Z)
    assert len(seen) == len(stack.layers) + 1
    coarse = run(stack, np.array([0.3, 0.4]), store=lambda Z: U.rounded(Z, 3))
    compare(coarse, U.rounded(coarse, 3))
    assert run(stack, np.zeros((5, 7, 2)))[..., ANSWER].shape == (5, 7, 2)


BAD = [
    (lambda: pair(names, 1), r"cells is 1; expected at least 2"),
    (lambda: pair(names, 2.5), r"cells is 2\.5; it must be an integer >= 1"),
    (lambda: pair(names, 3, band=1.0), r"band is 1\.0; it must lie in \(0, 1\)"),
    (lambda: pair(names, 3, scale=-1.0), r"scale is -1\.0; it must be > 0"),
    (lambda: pair(lambda x, y: (x,), 3), r"f returns 1 answers; expected 2, one for each token"),
    (lambda: star(names, 1, 3), r"n is 1; a star needs a hub and at least one more token"),
    (lambda: star(lambda x, y, z: (x, y), 3, 2), r"f returns 2 answers; expected 3, one for each token"),
    (lambda: star(names, 2, 3, mask=np.eye(2)), r"mask contains no star of 2 tokens; token 0 must see every token"),
    (lambda: star(names, 2, 3, mask=np.ones((3, 3))), r"mask contains no star of 2 tokens"),
    (lambda: star(names, 2, 3, numbers=0), r"numbers is 0; it must be an integer >= 1"),
    (lambda: run(star(names, 2, 2, numbers=2), np.ones((4, 2))), r"built for 2 tokens of 2 numbers, \(\.\.\., 2, 2\)"),
    (lambda: U.merge(pair(names, 2).layers), r"layers are no feed-forward layers; merge the layers between two"),
    (lambda: U.merge([]), r"layers are no feed-forward layers"),
    (lambda: U.table([1.0], 2), r"values has 1 entries; a table needs at least 2"),
    (lambda: U.rounded(np.ones(2), 0), r"bits is 0; it must be an integer >= 1"),
    (lambda: run(pair(names, 2), np.zeros((4, 3))), r"X has shape \(4, 3\); this stack was built for 2 tokens"),
    (lambda: run(pair(names, 2), 0.5), r"X has shape \(\); this stack was built for 2 tokens"),
]


@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, as_users_call):
    call, message = BAD[row]
    with pytest.raises(ValueError, match=message):
        call()
