"""The one base of this package's errors."""

__all__ = ["NbrefereeError"]


class NbrefereeError(Exception):
    """Something that a person can put right; the text is one line that names the cure."""
