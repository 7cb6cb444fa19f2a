import torch


class AdamW:
    """Adam with decoupled weight decay; vectors (biases, gains) are not decayed."""

    def __init__(self, weights, rate, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
        self.weights, self.rate, self.eps, self.decay = list(weights), rate, eps, decay
        self.betas, self.t = betas, 0
        self.moments = [(0 * w.detach(), 0 * w.detach()) for w in self.weights]

    def zero_grad(self):
        for w in self.weights:
            w.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for w, (m, v) in zip(self.weights, self.moments, strict=True):
            if w.grad is None:
                continue
            m.lerp_(w.grad, 1 - b1)  # the average of the gradients
            v.lerp_(w.grad**2, 1 - b2)  # the average of their squares
            m_hat, v_hat = m / (1 - b1**self.t), v / (1 - b2**self.t)
            if w.dim() > 1:
                w.mul_(1 - self.rate * self.decay)
            w.sub_(self.rate * m_hat / (v_hat.sqrt() + self.eps))
