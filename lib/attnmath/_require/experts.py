"""What a router is asked: how many experts each token gets, how many tokens each expert takes, and finite scores."""

from attnmath._require.numbers import count


def top(top, experts):
    """Each token gets at least one expert, and no more than there are."""
    count("top", top)
    if top > experts:
        raise ValueError(
            f"top is {top}, but there are only {experts} experts; each token can be sent to at most {experts} of them"
        )


def capacity(capacity):
    """An expert takes at least one token, or any number of them."""
    if capacity is not None:
        count("capacity", capacity)


def room(tokens, experts, factor):
    """The capacity of each expert, a count of tokens, is at least one."""
    if tokens < 1:
        raise ValueError(
            f"a capacity factor of {factor} leaves each of {experts} experts less than one token; raise it, or give "
            "longer texts or fewer experts"
        )


def not_finite(at, value):
    """A score of the router is nan or infinite, which no choice can be made from."""
    raise ValueError(
        f"S[{', '.join(map(str, at))}] is {value}; the scores of a router must be finite: look for an overflow in the "
        "rows that reach it, or lower the learning rate"
    )


def number(found, experts):
    """The parameters are those of as many experts as there should be."""
    if found != experts:
        raise ValueError(f"params['router'] scores {found} experts, but experts is {experts}; they must agree")
