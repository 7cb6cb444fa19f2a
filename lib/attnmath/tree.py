"""Parameters as nested dicts: the twin's ``state_dict()`` keys, split at the dots."""

from collections.abc import Callable


def map_tree(f: Callable, *trees):
    """Apply ``f`` leaf by leaf to trees of one structure."""
    if isinstance(trees[0], dict):
        return {key: map_tree(f, *(tree[key] for tree in trees)) for key in trees[0]}
    return f(*trees)


def add(*trees):
    """The sum of trees of one structure, as a value used several times receives several cotangents."""
    return map_tree(lambda *leaves: sum(leaves[1:], leaves[0]), *trees)


def flatten(tree: dict, prefix: str = "") -> dict:
    """``{"a": {"b": x}}`` to ``{"a.b": x}``, the keys of a ``state_dict``."""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def unflatten(flat: dict) -> dict:
    """The inverse of `flatten`."""
    tree: dict = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def child(record: dict | None, *path: str) -> dict | None:
    """The sub-dictionary of a record in which a component writes its intermediates; None stays None."""
    for name in path:
        if record is not None:
            record = record.setdefault(name, {})
    return record
