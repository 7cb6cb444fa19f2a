"""Places and segments that do not fit are refused with the cure."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.tree import map_tree

pytestmark = pytest.mark.usefixtures("as_users_call")

IDS, X = np.array([[1, 2, 0]]), np.ones((1, 2, 3, 4))
TREES = {
    "token_embedding": shapes.random_tree(shapes.token_embedding_shapes(5, 6, 4), np.random.default_rng(0)),
    "bert_embedding": shapes.random_tree(shapes.bert_embedding_shapes(5, 4, 2, 6), np.random.default_rng(0)),
}
NONE = {name: P for name, P in TREES["bert_embedding"].items() if name != "segment"}

BAD = {
    "rows": (
        lambda w, c: w.rotary(c(X), places=c(IDS[:, :2])),
        r"places has shape \(1, 2\).* broadcast to \(1, 2, 3\)",
    ),
    "heads": (lambda w, c: w.rotary(c(X), places=c(np.ones((3, 1, 3), int))), r"broadcast to \(1, 2, 3\)"),
    "floats": (lambda w, c: w.rotary(c(X), places=c(X[0, 0, :, 0])), "dtype .*float64; expected integers"),
    "outside": (
        lambda w, c: w.token_embedding(c(IDS), map_tree(c, TREES["token_embedding"]), places=c(IDS + 2)),
        "places run from 2 to 4, but there are 4 positions",
    ),
    "below": (
        lambda w, c: w.token_embedding(c(IDS), map_tree(c, TREES["token_embedding"]), places=c(IDS - 1)),
        "places run from -1 to 1",
    ),
    "segments": (
        lambda w, c: w.bert_embedding(c(IDS), map_tree(c, TREES["bert_embedding"]), segments=c(IDS[:, :2])),
        r"segments has shape \(1, 2\); expected integers of ids' shape \(1, 3\)",
    ),
    "no segments": (
        lambda w, c: w.bert_embedding(c(IDS), map_tree(c, NONE), segments=c(0 * IDS)),
        "no table of segments: leave them out",
    ),
}


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("fault", BAD)
def test_what_does_not_fit_is_refused(fault, world):
    call, message = BAD[fault]
    with pytest.raises(ValueError, match=message):
        call(world, np.asarray if world is an else torch.tensor)
