"""Nine tokens on a sphere: their path with and without a causal mask, their clusters, and a wait."""


def example(own):
    import numpy as np

    def follow(X):
        led = own.simulate(X, 2.0, step=0.25, layers=12, causal=True)
        path = own.simulate(X, 9.0, step=0.5, layers=40)
        return led, path, own.places(path[-1]), own.wait(0.3, 8.0), own.wait(0.0, 3.0, n=5)

    return follow, (own.unit(np.random.default_rng(0).standard_normal((9, 3))),)


def library(own, follow, arguments):
    from functools import partial

    import numpy as np

    import attnmath.numpy as an
    from attnmath import particles

    def flow(X, **options):
        return an.sphere_attention_flow(X, **options)[0]

    (X,), euler, mask = arguments, particles.euler, np.tri(9, dtype=bool)
    led = particles.integrate(partial(flow, mask=mask, beta=2.0), X, 0.25, 12, method=euler)[1]
    path = particles.integrate(partial(flow, beta=9.0), X, 0.5, 40, method=euler)[1]
    waits = particles.equal_angle_time(2, 8.0, start=0.3), particles.equal_angle_time(5, 3.0)
    return led, path, particles.cluster_count(path[-1]), *waits
