"""What lenses, probes and their controls are given."""

import numpy as np


def last_norm(params):
    """A model whose stream ends in a layer norm."""
    found = sorted(params.get("norm", {}))
    if found != ["bias", "gain"]:
        raise ValueError(f"params['norm'] holds {found}; a lens needs the last layer norm: give its gain and its bias")


def no_bias(params):
    """Logits that are linear in the normed stream."""
    if "bias" in params.get("head", {}):
        raise ValueError("the head has a bias, which no layer writes; leave it out and add it to the sum")


def occurrences(X, labels):
    """One label for each row."""
    if X.ndim < 1 or labels.shape != X.shape[:1] or not labels.size:
        raise ValueError(f"there are labels of shape {labels.shape} for {X.shape}; give one label for each row")


def classes(kinds):
    """Means differ between classes."""
    if len(kinds) < 2:
        raise ValueError(f"all labels are {kinds[0]!r}; give at least two classes")


def different(rank):
    """There is something to remove."""
    if rank == 0:
        raise ValueError("the means of all classes are equal: there is no direction to remove")


def orthonormal(U):
    """A basis that can be projected on."""
    if not np.allclose(U.T @ U, np.eye(U.shape[-1]), atol=1e-5):
        raise ValueError("the columns of U are not orthonormal; take the Q of numpy.linalg.qr(U)")


def yes_or_no(labels):
    """A property that some rows have and others do not."""
    if labels.dtype != bool or labels.all() or not labels.any():
        raise ValueError(f"labels are {labels.dtype}, {np.unique(labels)!r}; give booleans, with a True and a False")
