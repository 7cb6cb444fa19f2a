"""Two layers of attention alone, and where their heads look in texts that repeat."""


def example(own):
    import torch

    model = own.AttentionOnly(9, 20, width=12, heads=3)
    ids = torch.randint(1, 6, (4, 20))

    def scored(ids):
        Z, weights = model(ids)
        return [Z] + [own.occurrence_scores(P, ids, count) for P in weights for count in (1, 2, 3)]

    scored.model = model
    return scored, (ids,)


def library(own, scored, arguments):
    import numpy as np

    import attnmath.torch as at
    from attnmath.induction import occurrence_scores

    (ids,), model = arguments, scored.model
    names = ("query", "key", "value", "output")
    layers = {
        str(i): {"attention": {name: {"weight": W} for name, W in zip(names, maps, strict=True)}}
        for i, maps in enumerate(model.maps)
    }
    params = {"embeddings": {"word": model.word, "position": model.place}, "layers": layers}
    record: dict = {}
    Z = at.attention_only(ids, params | {"head": {"weight": model.read}}, 3, record=record)
    maps = [record["layers"][i]["attention"]["weights"].detach().numpy() for i in "01"]
    return [Z] + [np.asarray(occurrence_scores(P, ids.numpy(), count)) for P in maps for count in (1, 2, 3)]
