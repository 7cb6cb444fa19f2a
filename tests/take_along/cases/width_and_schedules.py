"""A network four times as wide as its base: rates, first spreads, the output's multiplier, and the schedule."""

import torch
from torch import nn


def example(own):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(300, 64), nn.LayerNorm(64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    net.append(own.Output(64, 300, base=16))
    own.mup_init(net, 64, 16)

    def told(ids):
        rates = [
            group["lr"] + 0 * sum(P.sum().detach() for P in group["params"])
            for group in own.mup_groups(net, 0.02, 64, 16)
        ]
        schedule = [own.warmup_stable_decay(s, 40, 5, 10) for s in range(1, 42)]
        return net(ids), torch.stack(rates), torch.tensor(schedule)

    told.net = net
    return told, (torch.arange(7),)


def library(own, function, arguments):
    from attnmath.schedules import warmup_stable_decay
    from attnmath.width import factors

    net = function.net
    X = net[:-1](*arguments)
    sizes = {"input": 0.1, "hidden": 16**-0.5, "output": 16**-0.5}  # spreads at the base width
    for module, kind, ratio in ((net[0], "input", 1), (net[2], "hidden", 1), (net[5], "output", 1)):
        want = sizes[kind] * factors(kind, 64, 16).spread * ratio
        assert abs(module.weight.std().item() / want - 1) < 0.05
    scores = factors("output", 64, 16).multiplier * X @ net[5].weight.T
    rates = torch.tensor([0.02 * factors(kind, 64, 16).rate for kind in ("input", "hidden", "output")])
    schedule = torch.tensor([warmup_stable_decay(s, 1.0, 5, 10, 40) for s in range(1, 42)])
    return scores, rates, schedule
