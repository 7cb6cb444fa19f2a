"""Operations and bytes of a step of three models."""

MODELS = (  # d, layers, f, vocabulary, key width, gated
    (768, 12, 3072, 50_257, None, False),
    (4096, 32, 11_008, 32_000, None, True),
    (8192, 80, 28_672, 32_000, 1024, True),
)


def example(own):
    import numpy as np

    def all_of_it(context):
        found = []
        for d, layers, f, t, e, gated in MODELS:
            sizes = {"vocabulary": t, "key_width": e, "gated": gated}
            found += [own.weights(d, layers, f, **sizes)]
            for causal in (False, True):
                found += [own.training_flops(int(context), int(context), d, layers, f, causal, **sizes)]
        stays, rows, maps = own.training_bytes(1000, 64, 64, 48, 2, 128, 4)
        days = own.days(6e23, 1000, 1e15, 0.4)
        return np.log(found), np.array([stays, rows + maps, days])

    return all_of_it, (np.array(1024),)


def library(own, function, arguments):
    import numpy as np

    import attnmath.numpy as an
    from attnmath import count, shapes
    from attnmath.tree import flatten

    n, found = int(arguments[0]), []
    for d, layers, f, t, e, gated in MODELS:
        sizes = {"key_width": e, "gated": gated}
        found += [count.transformer_parameters(d, f, layers, t, **sizes)]
        found += [count.training_flops(n, d, f, layers, t, causal=causal, **sizes) for causal in (False, True)]
    rng = np.random.default_rng(0)
    params = shapes.random_tree(shapes.decoder_only_shapes(31, 48, 128, 2, heads=4), rng, 0.1)
    _, vjp = an.decoder_only(rng.integers(0, 31, (1, 64)), params, 4, attend=an.attention)
    kept = (count.bytes_held(vjp) - sum(W.nbytes for W in flatten(params).values())) / 8  # numbers
    own_kept = sum(own.training_bytes(1000, 64, 64, 48, 2, 128, 4)[1:])
    assert abs(2 * (kept - 64 * 48) / own_kept - 1) < 0.03
    return np.log(found), np.array([count.training_bytes(1000), own_kept, 6e23 / 4e17 / 86_400])
