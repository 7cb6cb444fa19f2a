"""Parameters: nested dicts of arrays."""

from difflib import get_close_matches


def branches(params, required, optional=(), name="params"):
    """A component's parameters are a dict with the required keys, perhaps the optional ones, and no others."""
    if not isinstance(params, dict):
        raise ValueError(f"{name} is a {type(params).__name__}; expected a dict with {_listed(required, optional)}")
    missing = [key for key in required if key not in params]
    if not missing and len(params) == len(required):
        return
    unexpected = [key for key in params if key not in required and key not in optional]
    if missing or unexpected:
        faults = [f"lacks {', '.join(map(repr, missing))}"] if missing else []
        faults += [f"holds {', '.join(map(repr, unexpected))}, which nothing reads"] if unexpected else []
        raise ValueError(
            f"{name} {' and '.join(faults)}{_guess(unexpected, [*required, *optional])}; "
            f"expected {_listed(required, optional)}"
        )


def _listed(required, optional):
    perhaps = f", and perhaps {', '.join(map(repr, optional))}" if optional else ""
    return f"the keys {', '.join(map(repr, required))}{perhaps}"


def _guess(unexpected, known):
    """The right name nearest to each wrong one, where there is one."""
    pairs = [(key, get_close_matches(str(key), map(str, known), 1)) for key in unexpected]
    near = [f"{match[0]!r} for {key!r}" for key, match in pairs if match]
    return f" (write {', '.join(near)})" if near else ""


def tree(params, shapes_tree, name="params"):
    """The parameters form the expected tree of the expected shapes."""
    if isinstance(shapes_tree, dict):
        branches(params, tuple(shapes_tree), name=name)
        for key, sub in shapes_tree.items():
            tree(params[key], sub, f"{name}[{key!r}]")
    elif tuple(getattr(params, "shape", ())) != tuple(shapes_tree):
        raise ValueError(f"{name} has shape {tuple(getattr(params, 'shape', ()))}; expected {tuple(shapes_tree)}")


def leaf(leaf, name="the leaf of an affine map"):
    """The parameters of one affine map: a weight, and perhaps a bias as wide as the weight's columns."""
    branches(leaf, ("weight",), ("bias",), name)
    for key, axes in (("weight", 2), ("bias", 1)):
        if key in leaf and len(getattr(leaf[key], "shape", ())) != axes:
            raise ValueError(
                f"{name} has a {key} that is {_shape_of(leaf[key])}; expected {'(i, o)' if axes == 2 else '(o,)'}"
            )
    if "bias" in leaf and leaf["bias"].shape[0] != leaf["weight"].shape[1]:
        raise ValueError(
            f"{name} has a weight of shape {tuple(leaf['weight'].shape)} and a bias of shape "
            f"{tuple(leaf['bias'].shape)}; expected a bias as wide as the weight's columns"
        )


def _shape_of(value):
    return f"of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
