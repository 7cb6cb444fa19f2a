import torch


class LossScale:
    """A factor for the loss: halved after an overflow, doubled after a good while."""

    def __init__(self, scale=2.0**16, interval=2000):
        self.scale, self.interval, self.good = scale, interval, 0

    def update(self, finite):
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self.good == self.interval:
            self.scale, self.good = min(2 * self.scale, 2.0**127), 0


def mixed_step(loss_of, weights, optimiser, scaler, dtype=torch.float16, limit=None):
    """One step: weights and optimiser in float32, forward and backward pass in 16 bits.

    loss_of maps the 16-bit copies to a loss in float32. For bfloat16, scale 1 will do.
    Returns the loss, and whether the step was taken.
    """
    copies = [w.detach().to(dtype).requires_grad_() for w in weights]
    loss = loss_of(copies)
    grads = torch.autograd.grad(scaler.scale * loss, copies)
    grads = [g.float() / scaler.scale for g in grads]  # divided in 32 bits
    finite = all(bool(g.isfinite().all()) for g in grads)
    if finite:  # otherwise the step is left out
        for w, g in zip(weights, grads, strict=True):
            w.grad = g
        if limit is not None:
            torch.nn.utils.clip_grad_norm_(weights, limit)  # behind the division
        optimiser.step()
    scaler.update(finite)
    return loss.item(), finite
