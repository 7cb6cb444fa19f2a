"""The library of *The Mathematics of Attention*.

Every component has one name and two implementations. In ``attnmath.numpy``, ``f(*arrays) -> (y, vjp)``: the value
and the linear map that carries a cotangent of the value back to cotangents of the arrays, derived by hand. In
``attnmath.torch``, the same names and the same argument order, ``f(*tensors) -> y``, differentiated by autograd.
``attnmath.check`` compares the two. Choose a world as one chooses between libraries::

    import attnmath.numpy as an
    import attnmath.torch as at

Masks are boolean, True = may attend. A returned array, and an argument as long as its vjp may be called, may be
looked at and used, not written into: a vjp keeps what it needs, not copies of it. This module imports nothing.
"""
