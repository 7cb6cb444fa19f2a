"""Attention on projected keys: what is refused, what a mask of slots hides, and the work that is done."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.low_rank import best_error, main, projection_error
from tests.attnmath.refusals import check_refused

X = np.zeros
BAD = [
    ((X((3, 7)), X((11, 7)), X((11, 2)), X((5, 10)), X((5, 11))), {}, r"E has shape \(5, 10\).*with m = 11"),
    ((X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((4, 11))), {}, r"F has shape \(4, 11\).*with r = 5"),
    ((X((3, 7)), X((11, 7)), X((11, 2)), X((0, 11)), X((0, 11))), {}, r"E has shape \(0, 11\).*one slot is needed"),
    ((X((3, 7)), X((0, 7)), X((0, 2)), X((5, 0)), X((5, 0))), {}, r"K has shape \(0, 7\).*one key is needed"),
    (
        (X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((5, 11)), np.ones((3, 11), bool)),
        {},
        r"mask has shape \(3, 11\) and hides keys.*m = 11 keys into r = 5 slots.*slot_mask",
    ),
    (
        (X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((5, 11)), np.ones((3, 4), bool)),
        {},
        r"mask has shape \(3, 4\), which does not broadcast to the scores' shape \(3, 5\)",
    ),
    (
        (X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((5, 11)), np.zeros((3, 5), bool)),
        {},
        r"row \(0,\) may attend to no key",
    ),
    ((X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((5, 11))), {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ((X((3, 7)), X((11, 7)), X((11, 2)), X((5, 11)), X((5, 11), np.float32)), {}, r"F has dtype (torch\.)?float32"),
]


def given(world, args):
    return args if world is an else [torch.from_numpy(arg) for arg in args]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("args", "options", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_a_sentence(args, options, said, world, as_users_call):
    check_refused(world, "linformer_attention", args, options, said)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_slot_mask_refuses_more_queries_than_keys(world):
    E = given(world, [np.ones((2, 3))])[0]
    for n in (0, 4):
        with pytest.raises(ValueError, match=rf"n = {n} queries and m = 3 keys.*as many keys as queries"):
            world.slot_mask(n, E, E)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_slot_mask_asks_both_projections(world):
    """A slot is as late as the later of its last key and its last value."""
    E, F = np.zeros((2, 3, 5)), np.zeros((2, 3, 5))
    E[0, 0, 1], F[0, 0, 3], F[0, 1, 0], E[1, 2, 4] = -1.0, 2.0, 0.5, 1e-300
    wanted = np.ones((2, 2, 3), bool)  # the queries stand at the keys 3 and 4; a slot of nothing hides nothing
    wanted[1, 0, 2] = False
    np.testing.assert_array_equal(np.asarray(world.slot_mask(2, *given(world, [E, F]))), wanted)
    early = np.asarray(world.slot_mask(5, *given(world, [E, F])))[0]
    np.testing.assert_array_equal(early[:, 0], [False, False, False, True, True])
    np.testing.assert_array_equal(early[:, 1], [True] * 5)


def test_measures_name_the_argument(as_users_call):
    P, V = np.ones((2, 3)), np.ones((3, 2))
    for call, said in (
        (lambda: best_error([1.0], 1), r"P is a list"),
        (lambda: best_error(P, -1), r"r is -1; it must be >= 0"),
        (lambda: projection_error(P, V.T, 2), r"V has shape \(2, 3\).*with m = 3"),
        (lambda: projection_error(P, V, 0), r"r is 0; it must be an integer >= 1"),
        (lambda: projection_error(P, V, 2, fourth=0.5), r"fourth is 0\.5; a fourth moment is at least 1"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_one_slot_for_each_key_is_attention(rng):
    """With the identity as projections nothing is mixed, and a mask of slots is a mask of keys."""
    Q, K, V = rng.standard_normal((3, 4, 7)), rng.standard_normal((3, 5, 7)), rng.standard_normal((3, 5, 2))
    mask = rng.random((4, 5)) < 0.6
    mask[:, 1] = True
    O, vjp = an.linformer_attention(Q, K, V, np.eye(5), np.eye(5), mask)
    plain, plain_vjp = an.attention(Q, K, V, mask)
    compare(O, plain, name="values", atol=1e-13)
    dO = rng.standard_normal(O.shape)
    compare(vjp(dO)[:3], plain_vjp(dO), name="cotangents", atol=1e-13)
    compare(an.slot_mask(4, np.eye(5), np.eye(5)).astype(float), np.tril(np.ones((4, 5)), 1), name="causal")


def counted(f):
    with FlopCounterMode(display=False) as counter:
        f()
    return counter.get_total_flops()


@pytest.mark.claim("pf:linformer-flops")
@pytest.mark.parametrize(("n", "r", "k", "v"), [(11, 3, 7, 2), (64, 8, 16, 16)])
def test_the_work_of_its_matrix_products(n, r, k, v, rng):
    Q, K, V, E, F = (torch.from_numpy(rng.standard_normal(s)) for s in ((n, k), (n, k), (n, v), (r, n), (r, n)))
    plain = partial(at.attention, Q, E @ K, F @ V)
    work = counted(lambda: (E @ K, F @ V)) + counted(plain)
    assert work == 4 * r * n * (k + v)
    assert counted(lambda: at.attention(Q, K, V)) == 2 * n * n * (k + v)
    record = []
    fused = counted(lambda: record.append(at.linformer_attention(Q, E=E, F=F, K=K, V=V)))
    assert fused <= work and record[0].shape == (n, v), "no n x n product beside them"


def test_it_holds_nothing_of_n_times_n(rng):
    from attnmath.count import bytes_held

    Q, K, V = rng.standard_normal((3, 512, 4))
    E = rng.standard_normal((3, 512))
    held = bytes_held(an.linformer_attention(Q, K, V, E, E)[1])
    assert held < 512 * 512 and bytes_held(an.attention(Q, K, V)[1]) > 8 * 512 * 512


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_a_model_takes_it_without_an_edit(world, rng):
    """Each layer of an encoder with projections of its own."""
    sizes = shapes.encoder_shapes(6, 11, 2, heads=2)
    params, Z = shapes.random_tree(sizes, rng, 0.5), rng.standard_normal((2, 9, 6))
    projections = [rng.standard_normal((2, 4, 9)) for _ in range(4)]
    first, second = (
        [partial(w.linformer_attention, E=E, F=F) for E, F in (p[:2], p[2:])]
        for w, p in ((an, projections), (at, [torch.from_numpy(E) for E in projections]))
    )
    Y, _ = an.encoder(Z, params, 2, attend=first)
    twin = at.encoder(torch.from_numpy(Z), at.from_numpy(params), 2, attend=second)
    compare(twin, Y, name="twin", atol=1e-11)
    assert np.abs(Y - an.encoder(Z, params, 2)[0]).max() > 1e-2
    assert world.encoder.__name__ == "encoder"


@pytest.mark.slow
def test_the_command_measures_what_the_page_says(capsys):
    page = Path(__file__).parents[2] / "chapters/07_outlook/low_rank.ipynb"
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    said = "".join("".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", []))
    main([])
    table = capsys.readouterr().out
    assert len(table.splitlines()) == 4 and table in said
    with pytest.raises(SystemExit):
        main(["--ranks", "7"])
    assert "give divisors of 256" in capsys.readouterr().err
