"""Gates of a memory, the state that it starts from, and the masks that a recurrence can honour."""

from attnmath._require.arrays import broadcast, floats

_CURES = {
    "decay": "a decay is what is kept of a component, take the sigmoid of a logit or the exponential of a log-decay",
    "beta": "0 leaves what is stored under a key, 1 replaces it, 2 reflects it; take the sigmoid of a logit",
}


def gate_shape(name, gate, like, shapes):
    """A gate has the keys' dtype and broadcasts to one of the shapes without enlarging it."""
    floats(K=like, **{name: gate})
    if not any(broadcast(tuple(gate.shape), shape) == shape for shape in shapes):
        allowed = " or ".join(map(str, shapes))
        raise ValueError(f"{name} has shape {tuple(gate.shape)}, which does not broadcast to {allowed}, one row a key")


def gate_values(name, gate, highest):
    """No gate enlarges, none turns the sign that may not, none is NaN."""
    right = (gate >= 0) & (gate <= highest)
    if not bool(right.all()):
        bad = float(gate[~right].reshape(-1)[0])
        raise ValueError(f"{name} holds {bad:.4g}; it must be >= 0 and <= {highest}: {_CURES[name]}")


def state(state, like, shape):
    """What the memory holds at the start."""
    floats(K=like, state=state)
    if broadcast(tuple(state.shape), shape) != shape:
        raise ValueError(f"state has shape {tuple(state.shape)}, which does not broadcast to {shape}, (…, k, v)")


def no_such_mask():
    """Raise for a mask that hides a key from one query and shows it to a later one, or the other way round."""
    raise ValueError(
        "mask hides a key from some of the queries that come after it: a memory that is written once can leave a key "
        "out for all or for none. Pass True or a causal mask, perhaps with keys hidden from every query"
    )
