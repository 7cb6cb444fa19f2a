"""What cannot be computed is refused in one short line, in both worlds."""

import numpy as np
import pytest
import torch

import attnmath.torch as at


def lift(world, thing):
    """An array as the world takes it; other things as they are."""
    return torch.from_numpy(thing) if world is at and isinstance(thing, np.ndarray) else thing


def check_refused(world, name: str, args, options: dict, message: str):
    """A function of a world raises a ValueError whose one line has the message."""
    given = {key: lift(world, value) for key, value in options.items()}
    with pytest.raises(ValueError, match=message) as error:
        getattr(world, name)(*(lift(world, arg) for arg in args), **given)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
