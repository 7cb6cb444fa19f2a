"""Going on with a second task: a small encoder learns the digits 0 to 4, then 5 to 9, with and without replay.

Its runs are recorded by the command of `attnmath.few_shots`.
"""

from functools import cache, partial

import numpy as np

from attnmath import shapes

D, HEADS, F, PHASE, IMAGES = 32, 4, 64, 300, 1200  # of the encoder; steps of each training; images for training
SHARES, SHOTS = (0, 1, 5, 10, 20, 100), (1, 5, 20)  # percent of the old images that are replayed; images of a new digit
RATE, RATES = 3e-3, (1e-3, 3e-3, 1e-2, 3e-2)  # of Adam: in the two trainings, and those tried on few images
PACES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # rates of the second training without replay
SCALES = (3.0, 10.0, 30.0, 100.0)  # of the cosines, tried in attention
TRIED = 9  # the seed with which they are tried
WAYS = {"pixels": SCALES, "features": SCALES, "tuned": RATES, "from scratch": RATES}
CHOSEN = {  # the best of them for 1, 5 and 20 images, on images that are neither shown nor in the test
    "pixels": (3.0, 10.0, 30.0),
    "features": (3.0, 10.0, 30.0),
    "tuned": (1e-2, 3e-3, 3e-2),
    "from scratch": (1e-3, 1e-2, 3e-2),
}


@cache
def digits():
    """Scikit-learn's handwritten digits, 8 x 8, from 0 to 1, in an order of ours: the first IMAGES are for training.

    Examples
    --------
    >>> X, y = digits()
    >>> tuple(X.shape), int((y[:IMAGES] < 5).sum())
    ((1797, 8, 8), 610)
    """
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(99).permutation(len(data.target))
    return torch.tensor(data.images[order] / 16, dtype=torch.float32), torch.tensor(data.target[order])


def reader(seed: int):
    """A small encoder: the eight rows of an image are its tokens, and a linear layer names the digit.

    Examples
    --------
    >>> X, y = digits()
    >>> logits(X[:2], reader(0).tree()).shape
    torch.Size([2, 10])
    """
    import torch

    import attnmath.torch as at

    torch.manual_seed(seed)
    layer = shapes.of(partial(at.encoder_layer, join=_join()), D, F, HEADS)
    tree = {"rows": shapes.linear_shapes(8, D), "position": (8, D), "layer": layer}
    return at.ParamTree(tree | {"norm": shapes.norm_shapes(D), "head": shapes.linear_shapes(D, 10)})


def features(X, params):
    """(b, D) features of images (b, 8, 8): the mean of what the encoder's layer makes of the rows."""
    import attnmath.torch as at

    Z = at.affine(X, params["rows"]) + params["position"]
    Z = at.encoder_layer(Z, params["layer"], HEADS, join=_join())
    return at.layer_norm(Z, **params["norm"]).mean(-2)


def logits(X, params):
    """(b, 10) scores of the digits."""
    import attnmath.torch as at

    return at.affine(features(X, params), params["head"])


def _join():
    import attnmath.torch as at

    return partial(at.sublayer, norm=at.layer_norm, norm_first=True)


def continual(seed: int, phase: int = PHASE, shares=SHARES) -> dict:
    """Learn the digits 0 to 4, go on with 5 to 9, and measure what is left.

    Parameters
    ----------
    seed : of the weights, the batches, and which images are kept or shown.
    phase : steps of each of the two trainings.
    shares : percent of the images of 0 to 4 that are kept; half of each batch then comes from these.

    Returns
    -------
    A dict: the first losses; ``before``, right answers on 0 to 4 after the first training; ``share p``, right answers
    on both halves, with the last layer fitted again on all images, and on 0 to 4 if only these five may be answered,
    and for 0 the curve; ``fresh``, the last layer fitted on an encoder never trained; ``joint``, both halves at once
    for the same number of steps.

    Examples
    --------
    >>> sorted(continual(0, phase=2, shares=(0,)))
    ['before', 'first', 'fresh', 'joint', 'share 0']
    """
    old, new = _halves()
    model, learned, first = _learned(seed, phase)
    run = {"first": first, "before": _right(model)[0]}
    for share in shares:
        model.load_state_dict(learned)
        rng = np.random.default_rng([seed, 2])
        kept = rng.permutation(old)[: round(len(old) * share / 100)]
        draw = partial(_mixed, rng, new, kept)
        _, curve = _learn(model, phase, draw, watch=share == 0)
        run[f"share {share}"] = {"kept": len(kept), "right": _right(model), "refitted": _refitted(model)}
        run[f"share {share}"]["among five"] = _right(model, five=True)[0]
        run[f"share {share}"] |= {"curve": curve} if curve else {}
    model, rng = reader(seed), np.random.default_rng([seed, 4])
    run["fresh"] = _refitted(model)
    _learn(model, 2 * phase, lambda: rng.integers(0, IMAGES, 32))
    return run | {"joint": _right(model)}


def paces(seed: int) -> dict:
    """Right answers on 0 to 4 and on 5 to 9 after the second training without replay, at each of `PACES`."""
    (model, learned, _), (_, new), found = _learned(seed), _halves(), {}
    for rate in PACES:
        model.load_state_dict(learned)
        _learn(model, PHASE, partial(_mixed, np.random.default_rng([seed, 2]), new, ()), rate=rate)
        found[f"{rate:g}"] = _right(model)
    return found


def few(seed: int) -> dict:
    """By the number of images of each new digit: right answers on 5 to 9 in each of `WAYS`, and what is left of 0 to 4.

    Only 5 to 9 may be answered. What is left is asked after training on the images, among all ten digits.
    """
    _, y = digits()
    (_, learned, _), found = _learned(seed), {}
    asked = IMAGES + np.flatnonzero(np.asarray(y[IMAGES:]) >= 5)
    for i, k in enumerate(SHOTS):
        shown, _ = _images(seed, k)
        right = {way: _few(way, learned, shown, asked, seed, CHOSEN[way][i]) for way in WAYS}
        found[str(k)] = {way: one for way, (one, _) in right.items()} | {"left": right["tuned"][1]}
    return found


def _halves():
    """Which images for training show 0 to 4, and which 5 to 9."""
    _, y = digits()
    return [np.flatnonzero(np.asarray(half[:IMAGES])) for half in (y < 5, y >= 5)]


def _learned(seed, phase=PHASE):
    """An encoder that has learned 0 to 4, its state, and its first losses."""
    rng, model, old = np.random.default_rng([seed, 1]), reader(seed), _halves()[0]
    first, _ = _learn(model, phase, lambda: rng.choice(old, 32))
    return model, {name: value.clone() for name, value in model.state_dict().items()}, first


def _mixed(rng, new, kept):
    """A batch of new images, the second half of it old ones if any are kept."""
    if not len(kept):
        return rng.choice(new, 32)
    return np.concatenate([rng.choice(new, 16), rng.choice(kept, 16)])


def _images(seed, k):
    """k images of each new digit from those for training, and the rest of the new digits' images there."""
    _, y = digits()
    rng = np.random.default_rng([seed, 3, k])
    new = np.asarray(y[:IMAGES])
    shown = np.concatenate([rng.choice(np.flatnonzero(new == c), k, False) for c in range(5, 10)])
    return shown, np.setdiff1d(np.flatnonzero(new >= 5), shown)


def _few(way, learned, shown, asked, seed, at):
    """Right answers to the images asked, only 5 to 9 may be said, and what is then left of 0 to 4, if that changed."""
    model = reader(seed)
    if way != "from scratch":
        model.load_state_dict(learned)
    if way in ("pixels", "features"):
        f = (lambda X: X.flatten(1)) if way == "pixels" else (lambda X: features(X, model.tree()))
        return _by_attention(f, shown, _halves()[0], asked, at), None
    rng = np.random.default_rng([seed, 6, len(shown)])
    _learn(model, PHASE // 3, lambda: rng.choice(shown, 32), rate=at)
    return _among_new(model, asked), _right(model)[0]


def tried(k: int) -> dict:
    """For each of `WAYS` and each of its settings, right answers on 5 to 9 after k images of each.

    The images asked are for training and not shown; no image of the test is looked at.
    """
    _, learned, _ = _learned(TRIED)
    shown, asked = _images(TRIED, k)
    one = lambda way, at: _few(way, learned, shown, asked, TRIED, at)[0]  # noqa: E731
    return {way: {f"{at:g}": one(way, at) for at in settings} for way, settings in WAYS.items()}


def _learn(model, steps, draw, *, watch=False, rate=RATE):
    """The first losses, and what is right after each ten steps if that is wanted."""
    import torch
    import torch.nn.functional as nnf

    X, y = digits()
    adam, first, curve = torch.optim.Adam(model.parameters(), rate), [], []
    for step in range(steps):
        if watch and step % 10 == 0:
            curve.append([step, *_right(model)])
        rows = draw()
        loss = nnf.cross_entropy(logits(X[rows], model.tree()), y[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
        first += [round(loss.item(), 5)] if step < 4 else []
    return first, curve


def _among_new(model, asked):
    """The share of right answers to some images of 5 to 9 if only these may be said."""
    import torch

    X, y = digits()
    with torch.no_grad():
        said = 5 + logits(X[asked], model.tree())[:, 5:].argmax(-1)
    return round((said == y[asked]).double().mean().item(), 4)


def _right(model, *, five=False):
    """The share of right answers for held-out images of 0 to 4 and of 5 to 9, among ten digits, or those five."""
    import torch

    X, y = (part[IMAGES:] for part in digits())
    with torch.no_grad():
        Z = logits(X, model.tree())
        if five:
            Z = Z.masked_fill((torch.arange(10) < 5) != (y < 5)[:, None], -torch.inf)
        right = (Z.argmax(-1) == y).double()
    return [round(right[half].mean().item(), 4) for half in (y < 5, y >= 5)]


def _refitted(model):
    """The same, with a new last layer, fitted to all images for training on the frozen features."""
    import torch
    from sklearn.linear_model import LogisticRegression

    X, y = digits()
    with torch.no_grad():
        Z = features(X, model.tree()).double().numpy()
    fitted = LogisticRegression(C=10, max_iter=2000).fit(Z[:IMAGES], y[:IMAGES])
    right, new = fitted.predict(Z[IMAGES:]) == y[IMAGES:].numpy(), y[IMAGES:].numpy() >= 5
    return [round(float(right[half].mean()), 4) for half in (~new, new)]


def _by_attention(f, shown, old, asked, scale):
    """Right answers by softmax attention over a few images whose values are their digits."""
    import torch

    import attnmath.torch as at

    X, y = digits()
    with torch.no_grad():
        centre = f(X[old]).mean(0)
        Q, K = (torch.nn.functional.normalize(f(X[rows]) - centre, dim=-1) for rows in (asked, shown))
        O = at.attention_fused(Q, K, torch.eye(10)[y[shown]], scale=scale)
    return round((O.argmax(-1) == y[asked]).double().mean().item(), 4)
