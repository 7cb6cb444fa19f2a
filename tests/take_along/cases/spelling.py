"""The error rates, and two steps of a small model."""

SAID = ("kitten", "sat", "", "abcd", "aab")
REFERENCES = (("sitting", "mitten"), ("sat",), ("a", "bc"), ("dcba",), ("ba", "aabb"))


def example(own):
    import torch

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.linspace(-1, 1, 49).reshape(7, 7))

        def forward(self, source, said):
            return self.table[said] + self.table[source].mean(1, keepdim=True)

    source, target = torch.tensor([[3, 4], [5, 6]]), torch.tensor([[1, 4, 2, 0], [1, 3, 5, 2]])

    def everything(source, target):
        model = Small()
        optimiser = torch.optim.SGD(model.parameters(), 0.5)
        losses = [own.train_step(model, optimiser, source, target) for _ in range(2)]
        return torch.tensor([*own.error_rates(SAID, REFERENCES), *losses]), model.table.detach()

    everything.model = Small
    return everything, (source, target)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at
    from attnmath.tasks import g2p

    source, target = arguments
    table, losses = function.model().table.detach(), []
    for _ in range(2):
        W = table.clone().requires_grad_()
        Z = W[target[:, :-1]] + W[source].mean(1, keepdim=True)
        loss = at.cross_entropy(Z, target[:, 1:], target[:, 1:] != 0)
        grads, _ = at.clip_by_norm({"W": torch.autograd.grad(loss, W)[0]}, 1.0)
        table = table - 0.5 * grads["W"]
        losses.append(loss.item())
    found = g2p.score(SAID, REFERENCES)
    return torch.tensor([found["per"], found["wer"], *losses]), table
