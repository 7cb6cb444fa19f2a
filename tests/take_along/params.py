"""The parameters of plain PyTorch modules as the library's trees."""


def affine(module):
    """A linear map."""
    tree = {"weight": module.weight.detach().T}
    return tree if module.bias is None else tree | {"bias": module.bias.detach()}


def norm(module):
    """A layer norm."""
    return {"gain": module.weight.detach(), "bias": module.bias.detach()}


def attention(module, names=("query", "key", "value", "output")):
    """The four maps of attention, by the library's names and the module's own."""
    pairs = zip(("query", "key", "value", "output"), names, strict=True)
    return {ours: affine(getattr(module, own)) for ours, own in pairs}


def scattered(module, spread=0.3):
    """The module with parameters that are neither 0 nor 1."""
    import torch

    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for W in module.parameters():
            W.copy_(spread * torch.randn(W.shape, generator=generator))
    return module
