"""Trees of parameters and gradients, and the numbers of an optimiser."""

from attnmath._require.arrays import floats


def same_leaves(**trees):
    """Trees of float arrays, all of the first one's keys, shapes and dtypes."""
    (first, model), *others = trees.items()
    if not isinstance(model, dict):
        raise ValueError(f"{first} is a {type(model).__name__}; expected a tree: a dict of arrays or of such dicts")
    for key, leaf in model.items():
        same = {}
        for name, other in others:
            if not isinstance(other, dict) or set(other) != set(model):
                keys = sorted(other) if isinstance(other, dict) else f"a {type(other).__name__}"
                raise ValueError(f"{name} is {keys}; expected the keys of {first}, {sorted(model)}")
            same[f"{name}[{key!r}]"] = other[key]
        if isinstance(leaf, dict):
            same_leaves(**{f"{first}[{key!r}]": leaf}, **same)
            continue
        floats(**{f"{first}[{key!r}]": leaf}, **same)
        for name, other in same.items():
            if tuple(other.shape) != tuple(leaf.shape):
                raise ValueError(
                    f"{name} has shape {tuple(other.shape)}, expected that of {first}[{key!r}], {tuple(leaf.shape)}"
                )


def moments(state):
    """Adam's state. Returns its two trees by the names that messages use."""
    names = ["first", "second", "step"]
    if not isinstance(state, dict) or sorted(state) != names:
        found = sorted(state) if isinstance(state, dict) else f"a {type(state).__name__}"
        raise ValueError(f"state is {found}; expected the dict of adam_state(params) or of the step before, {names}")
    return {"state['first']": state["first"], "state['second']": state["second"]}


def decay_rates(name, betas):
    """Two rates at which averages forget. Returns them as floats."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name} is {betas!r}; expected two numbers in [0, 1)")
    return float(betas[0]), float(betas[1])


def finite_norms(name, norms, norm):
    """Every leaf of a tree of gradients has a finite length."""
    if norm - norm != 0:  # inf and nan
        bad = next((path for path, leaf in norms.items() if leaf - leaf != 0), next(iter(norms)))
        raise ValueError(
            f"{name} has the norm {norm}, and {bad!r} is the first leaf that is not finite; clipping cannot repair "
            "that: skip this step, and with a loss scale lower it"
        )
