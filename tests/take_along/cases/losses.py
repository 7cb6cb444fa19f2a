"""The loss with padding, with smoothing, and of the next tokens."""


def example(own):
    import torch

    generator = torch.Generator().manual_seed(2)
    Z, ids = torch.randn(3, 5, 7, generator=generator), torch.randint(1, 7, (3, 5), generator=generator)
    ids[0, 3:] = ids[2, 4:] = 0

    def three(Z, ids):
        def model(ids):
            return Z[:, : ids.shape[1]]

        losses = (
            own.cross_entropy(Z, ids),
            own.cross_entropy(Z, ids, 0, 0.1),
            own.next_token_loss(model, ids, 0, 0.2),
        )
        return torch.stack(losses)

    return three, (Z, ids)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    Z, ids = arguments
    shifted = at.cross_entropy(Z[:, :-1], ids[:, 1:], ids[:, 1:] != 0, smoothing=0.2)
    return torch.stack([at.cross_entropy(Z, ids), at.cross_entropy(Z, ids, ids != 0, smoothing=0.1), shifted])
