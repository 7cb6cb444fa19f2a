"""One run, its utilisation from its hours, and the joules of a token alone and in company."""

import numpy as np


def example(own):
    def numbers(parameters, tokens):
        hours, kwh = own.training(parameters, tokens)
        alone, together = (own.joules_per_token(parameters, texts, 5e8) for texts in (1, 1000))
        return np.array([hours, kwh, own.utilisation(parameters, tokens, 2 * hours), alone, together])

    return numbers, (7e9, 1.4e11)


def library(own, function, arguments):
    from attnmath import energy, roofline

    parameters, tokens = arguments
    flops = 6 * parameters * tokens
    hours = energy.device_hours(flops, energy.H100, 0.4)
    found = [hours, 1000 * energy.energy(hours, 700, 1.1), energy.utilisation(flops, 2 * hours, energy.H100)]
    for texts in (1, 1000):
        operations, moved = 2 * texts * (parameters + 5e8), 2 * (parameters + texts * 5e8)
        rate = roofline.attainable(roofline.H100, roofline.intensity(operations, moved))
        found.append(3.6e9 * energy.energy(operations / rate / 3600, 700, 1.1) / texts)
    return np.array(found)
