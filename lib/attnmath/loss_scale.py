"""A loss scale that finds itself: down after an overflow, up again after a stretch without one. Belongs to no world."""

from dataclasses import dataclass, replace

from attnmath import _require

LARGEST = 2.0**127  # the largest power of two in float32, in which the scaled loss is computed


@dataclass(frozen=True)
class LossScale:
    r"""The factor s that the loss is multiplied by, and the count of steps since it last changed.

    .. math:: s \leftarrow \begin{cases} s \cdot \text{backoff} & \text{after an overflow} \\
              s \cdot \text{growth} & \text{after an interval of steps without one} \\ s & \text{otherwise} \end{cases}

    Parameters
    ----------
    scale : s > 0, a power of two if the backward pass is to round as it does without scaling.
    growth, backoff : factors, > 1 and between 0 and 1.
    interval : good steps in a row before s grows.
    good : good steps so far, fewer than the interval.

    Raises
    ------
    ValueError
        If a number lies outside its domain.

    References
    ----------
    Micikevicius et al. (2018), section 3.2; the defaults and the order of events are those of ``torch.amp.GradScaler``.
    Chapter 6, alg-loss-scale.

    Examples
    --------
    >>> s = LossScale(1024.0, interval=2)
    >>> s.update(False).scale
    512.0
    >>> s.update(True).update(True).scale
    2048.0
    """

    scale: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    good: int = 0

    def __post_init__(self):
        _require.positive("scale", self.scale)
        if not self.growth > 1:
            raise ValueError(f"growth is {self.growth!r}; it must be > 1")
        if not 0 < self.backoff < 1:
            raise ValueError(f"backoff is {self.backoff!r}; it must lie between 0 and 1, both excluded")
        _require.count("interval", self.interval)

    def update(self, finite: bool) -> "LossScale":
        """The scale of the next step, after one whose gradients were finite (and were used) or not (and were not)."""
        if not finite:  # alg-loss-scale
            return replace(self, scale=self.scale * self.backoff, good=0)
        if self.good + 1 < self.interval:
            return replace(self, good=self.good + 1)
        grown = self.scale * self.growth
        return replace(self, scale=grown if grown <= LARGEST else self.scale, good=0)
