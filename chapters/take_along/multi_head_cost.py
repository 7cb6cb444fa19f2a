import torch


def layer_cost(n, d, heads, key_heads=None, batch=1, bytes_each=2, tiled=False):
    """What one layer of self-attention takes, forward, for texts of n tokens.

    Operations count a multiplication and an addition as two. tiled: the maps of
    attention are never stored, as in FlashAttention.
    """
    key_heads = heads if key_heads is None else key_heads
    shared = d * key_heads // heads  # the width of all keys together
    weights = 2 * d * d + 2 * d * shared
    maps = batch * heads * n * n
    return {
        "parameters": weights + 2 * d + 2 * shared,  # with biases
        "operations of projections": 2 * batch * n * weights,
        "operations of attention": 4 * batch * n * n * d,
        "exponentials": maps,
        "bytes of weights": bytes_each * weights,
        "bytes of rows kept to train": bytes_each * batch * n * (3 * d + 2 * shared),
        "bytes of maps kept to train": 0 if tiled else bytes_each * maps,
        "bytes of cache": bytes_each * 2 * batch * n * shared,
    }


def measured_bytes(function, *arguments):
    """The bytes that autograd keeps of one call, each piece of storage once."""
    kept = {}

    def hold(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        function(*arguments)
    return sum(storage.nbytes() for storage in kept.values())
