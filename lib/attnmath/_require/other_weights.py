"""What the weightings beside softmax ask of their options, in both worlds."""

from attnmath._require.arrays import broadcast, floats
from attnmath._require.numbers import integral

KINDS = ("sigmoid", "relu", "squared_relu", "square")
GRADIENTS = ("unrolled", "implicit")


def sinks(sinks, lead, like):
    """Logits of the scores' dtype, one for each head: their shape broadcasts to the scores' leading axes."""
    if sinks is None:
        return
    floats(S=like, sinks=sinks)
    shape, lead = tuple(sinks.shape), tuple(lead)
    if broadcast(shape, lead) != lead:
        raise ValueError(
            f"sinks has shape {shape}, which does not broadcast to the scores' leading axes {lead}; give one logit for "
            "each head"
        )


def steps(steps):
    """Rounds of Sinkhorn's iteration."""
    if not integral(steps) or steps < 0:
        raise ValueError(f"steps is {steps!r}; it must be an integer >= 0, and 0 is softmax")
