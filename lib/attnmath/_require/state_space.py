"""What a state space needs so that its state neither grows nor becomes NaN."""

from attnmath._require.arrays import broadcast, floats
from attnmath._require.numbers import count


def pairs(**arrays):
    """Complex numbers are given by two real ones, on the last axis."""
    for name, array in arrays.items():
        if array.shape[-1:] != (2,):
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}; its last axis holds real and imaginary part and has size 2"
            )


def steps(step, least="positive"):
    """A step goes forward in time; ``least`` says whether it may be of length 0."""
    good = step > 0 if least == "positive" else step >= 0
    _all("step", step, good, f"{least} numbers are expected, such as softplus or exp of what is learned")


def decays(name, rate):
    """An eigenvalue, or the logarithm of a decay, with a real part that is not positive."""
    _all(name, rate, rate <= 0, "it must be <= 0, or the state grows without bound: give -exp of what is learned")


def damped(name, rate):
    """An eigenvalue with a negative real part: 1 - z - step (1 + z) / 2 times it vanishes at no root of unity z."""
    _all(name, rate, rate < 0, "it must be < 0, or the kernel may divide by 0: give -exp of what is learned")


def numbers(**arrays):
    """No gate, input or read-out is NaN: one would spoil the state for ever."""
    for name, array in arrays.items():
        _all(name, array, array == array, "the state would be NaN from there on: look at what computed it")


def _all(name, array, good, cure):
    if not bool(good.all()):
        index = tuple((~good).reshape(-1).nonzero()[0].reshape(-1).tolist()[:1])
        flat = array.reshape(-1)
        raise ValueError(f"{name} holds {float(flat[index]):.4g}; {cure}")


def sizes(n, m, chunk):
    """The last query stands at the last key; a state is carried from chunk to chunk for queries at every key."""
    if not n <= m:
        raise ValueError(
            f"n = {n} queries and m = {m} keys; the last query stands at the last key, so n <= m is needed"
        )
    if chunk is not None:
        count("chunk", chunk)
        if n != m:
            raise ValueError(f"n = {n} queries and m = {m} keys; with a chunk they are as many: leave chunk=None")


def per_position(decay, shape, like):
    """A number for each key, or fewer that broadcast."""
    floats(Q=like, decay=decay)
    if broadcast(tuple(decay.shape), shape) != shape:
        raise ValueError(f"decay has shape {tuple(decay.shape)}, which does not broadcast to {shape}, one for each key")


def hides_keys(mask, keys, tri):
    """In chunks a mask hides later keys, and keys from all queries alike."""
    if mask is True or mask.shape[-2:-1] in ((), (1,)):
        return
    past = tri(*mask.shape[-2:])
    if bool(((mask * past) != (keys.swapaxes(-1, -2) * past)).any()):
        raise ValueError("mask hides a key from some queries only; with a chunk it may hide keys from all: chunk=None")
