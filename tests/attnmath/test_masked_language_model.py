"""What the masked language model computes nothing for, that both sides count, and what it refuses."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.masked_shapes import masked_head_shapes, masked_language_model_shapes
from attnmath.tree import flatten, map_tree

T, POSITIONS, D, HEADS = 11, 6, 4, 2
PARAMS = shapes.random_tree(
    masked_language_model_shapes(T, POSITIONS, 1, D, 9, 2, heads=HEADS), np.random.default_rng(1), 0.5
)
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
CHOSEN = np.array([[False, True, False, False, True], [True, False, False, False, False]])


def test_chosen_rows_are_those_of_the_whole():
    whole, _ = an.masked_language_model(IDS, PARAMS, HEADS, MASK)
    some, _ = an.masked_language_model(IDS, PARAMS, HEADS, MASK, CHOSEN)
    compare(some, whole[CHOSEN], name="rows", atol=1e-13)
    none, vjp = an.masked_language_model(IDS, PARAMS, HEADS, MASK, np.zeros_like(MASK))
    assert none.shape == (0, T) and all((X == 0).all() for X in flatten(vjp(none)).values())


def test_a_blank_is_told_by_both_sides_and_not_by_padding():
    """The first and the last token change the logits in the middle; what stands behind the mask does not."""
    logits = lambda ids: an.masked_language_model(ids, PARAMS, HEADS, MASK)[0]  # noqa: E731
    before = logits(IDS)
    for place in (0, 4):
        other = IDS.copy()
        other[0, place] = 7
        assert np.abs(logits(other)[0, 2] - before[0, 2]).max() > 1e-5
    other = IDS.copy()
    other[1, 4] = 7
    compare(logits(other)[1, :3], before[1, :3], name="padding", atol=0.0)


def test_the_module_is_the_function_and_its_head_is_tied():
    torch.manual_seed(0)
    model = at.MaskedLanguageModel(T, POSITIONS, 1, D, HEADS, 9, layers=2, eps=1e-3).double()
    ids, mask, chosen = map(torch.from_numpy, (IDS, MASK, CHOSEN))
    Z = model(ids, mask, chosen)
    want = at.masked_language_model(ids, model.tree(), HEADS, mask, chosen, eps=1e-3)
    compare(Z, want, name="module", atol=0.0)
    assert "head.table" not in model.state_dict() and model.head.bias.shape == (T,)
    by_hand, _ = an.masked_language_model(IDS, at.to_numpy(model.tree()), HEADS, MASK, CHOSEN, eps=1e-3)
    compare(by_hand, Z, name="NumPy", atol=1e-12)
    with pytest.raises(ValueError, match="heads"):
        at.MaskedLanguageModel(T, POSITIONS, 1, D, 3, 9, layers=1)


HEAD = shapes.random_tree(masked_head_shapes(D, T), np.random.default_rng(2))
H, E = np.ones((3, D)), np.ones((T, D))
LESS = {name: PARAMS[name] for name in ("embeddings", "layers")}
BAD = [
    ("masked_head", (H, {"bias": HEAD["bias"]}, E), "transform"),
    ("masked_head", (H, HEAD | {"norm": {"gain": H[0]}}, E), r"params\['norm'\]"),
    ("masked_head", (H, HEAD, E[:, :3]), r"table has shape \(11, 3\), expected \(t, d\) with d = 4"),
    ("masked_head", (H, HEAD, E[:9]), r"bias has shape \(11,\), expected \(t\) with t = 9"),
    ("masked_language_model", (IDS, LESS, HEADS), "head"),
    ("masked_language_model", (IDS * 1.0, PARAMS, HEADS), "token ids are integers"),
    ("masked_language_model", (IDS + 5, PARAMS, HEADS), "outside the vocabulary of 11 tokens"),
    ("masked_language_model", (IDS, PARAMS, HEADS, None, CHOSEN[0]), r"chosen has shape \(5,\) and dtype"),
    ("masked_language_model", (IDS, PARAMS, HEADS, None, IDS), "expected booleans of ids' shape"),
]


@pytest.mark.parametrize(("name", "args", "said"), BAD, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(BAD)])
def test_bad_input_is_refused_in_one_line_in_both_worlds(name, args, said, as_users_call):
    def moved(X):
        return torch.from_numpy(X) if isinstance(X, np.ndarray) else X

    tensors = [map_tree(moved, X) if isinstance(X, dict) else moved(X) for X in args]
    for world, given in ((an, args), (at, tensors)):
        with pytest.raises(ValueError, match=said) as caught:
            getattr(world, name)(*given)
        assert "\n" not in str(caught.value)
