"""Byte pairs: learned from one text, and a new text encoded and decoded."""

import numpy as np

TEXT = """The sine of each angle,  and the cosine: 2 arrays of 1000 angles.
sin, sinh and cosh are the same as in the other modules; see asin, asinh, acosh.
    The angles are given in radians (2 pi radians are 360 degrees)."""
NEW = "The arccosine of 1000 cosines is no\n\nsine — but Œuvres 12 are.\n\n  x = arccos(0.5)  "


def example(own):
    def both(text, new):
        merges = own.train(text, 256 + 60)
        ids = own.encode(new, merges)
        return np.array(ids), np.array([ord(c) for c in own.decode(ids, merges)])

    return both, (TEXT, NEW)


def library(own, function, arguments):
    from attnmath import bpe

    text, new = arguments
    tokens = bpe.train(text, 256 + 60)
    ids = tokens.encode(new)
    return np.array(ids), np.array([ord(c) for c in tokens.decode(ids)])
