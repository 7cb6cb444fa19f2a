"""The model of chapters/take_along/side_by_side.py after a step of training, and the library's parts in its place."""

import torch


def example(own):
    torch.manual_seed(3)
    ids = torch.randint(11, (4, 9))
    targets = torch.where(torch.rand(4, 9) < 0.5, ids.roll(1, 1), -1)
    model = own.Model(11, 9, 8, [own.Softmax, own.Linear])
    return own.train(model, lambda: (ids, targets), 3, 1e-2), (ids,)


def library(own, function, arguments):
    import attnmath.torch as at

    def told(linear):
        return {"weight": linear.weight.T, "bias": linear.bias}

    def mixed(X, mixer):
        names = ("query", "key", "value")
        parts = zip(mixer.into.weight.chunk(3), mixer.into.bias.chunk(3), strict=True)
        params = {name: {"weight": W.T, "bias": b} for name, (W, b) in zip(names, parts, strict=True)}
        n, linear = X.shape[-2], type(mixer).__name__ == "Linear"
        attend = at.linear_attention if linear else at.attention
        params["output"] = told(mixer.out)
        return at.multi_head_attention(X, X, X, params, mixer.heads, at.causal_mask(n), attend=attend)

    (ids,), (last, head) = arguments, function.head
    X = function.word.weight[ids] + function.place.weight[: ids.shape[-1]]
    for norm, step in function.steps:
        Z = at.layer_norm(X, norm.weight, norm.bias, norm.eps)
        X = X + (
            mixed(Z, step)
            if hasattr(step, "into")
            else at.feed_forward(Z, {"up": told(step[0]), "down": told(step[2])})
        )
    return at.layer_norm(X, last.weight, last.bias, last.eps) @ head.weight.T + head.bias
