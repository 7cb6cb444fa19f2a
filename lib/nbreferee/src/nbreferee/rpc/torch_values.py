"""PyTorch across the wall: gradients flow through a call into the other process, in both directions.

A result that has a history is, on the side that asked, the output of an `autograd.Function`: its inputs are the tensors
that this side has given, its backward pass asks the other side for their gradients. Parameters that the other side
keeps to itself get theirs there, once it is certain that ``backward()`` and not ``autograd.grad`` is at work: a leaf
without use, the anchor, is an input too, and only ``backward()`` adds to the gradient of a leaf.

This module is imported only where torch is.
"""

import contextlib
import weakref

import torch

from .exchange import _TORCH_DTYPES, Changed, Garbled, Refused

_DTYPES = {getattr(torch, name) for name in _TORCH_DTYPES}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_NODES = 200_000  # of a history


class _Token:
    """Dies with the history that holds it."""


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx, here, key, box, places, anchor, *leaves):
        ctx.here, ctx.key, ctx.places, ctx.token, ctx.task = here, key, places, _Token(), None
        ctx.like = [(leaf.shape, leaf.dtype) for leaf in leaves]
        weakref.finalize(ctx.token, _drop, weakref.ref(here), key).atexit = False
        return box[0]

    @staticmethod
    def backward(ctx, cotangent):
        here = ctx.here
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: second derivatives of an answer are not followed into its process; "
                "run this test sandboxed"
            )
        found = here.ask("vjp", (ctx.key, list(ctx.places), cotangent.detach(), _task(here)))
        if type(found) is not list or len(found) != len(ctx.places):
            here.garbled("no list of gradients")
        wanted = []
        for gradient, (shape, dtype) in zip(found, ctx.like, strict=True):
            if gradient is not None and (
                type(gradient) is not torch.Tensor or gradient.shape != shape or gradient.dtype != dtype
            ):
                here.garbled("a gradient of another shape")
            wanted.append(gradient)
        anchor = torch.zeros(()) if ctx.needs_input_grad[4] else None
        return None, None, None, None, anchor, *wanted


def _drop(here, key):
    if (here := here()) is not None:
        here.drops.append((key, 1))


def _task(here):
    """A number for the backward pass under way, wherever it began."""
    return here.task if here.task is not None else torch._C._current_graph_task_id()


def anchor(here):
    leaf = torch.zeros((), requires_grad=True)
    there = weakref.ref(here)

    def added(leaf):
        leaf.grad = None
        if (here := there()) is not None:
            here.ask("accumulate", (_task(here),))

    leaf.register_post_accumulate_grad_hook(added)
    return leaf


def sendable(value):
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return False
    return value.dtype in _DTYPES and value.layout is torch.strided and not value.is_meta


def _bytes(tensor):
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def state(tensor):
    grad = tensor.grad if tensor.is_leaf else None
    flags = tensor.requires_grad if tensor.is_leaf else None
    version = None if tensor.is_inference() else tensor._version  # autograd's own count of changes in place
    return (
        tensor.shape,
        tensor.dtype,
        hash(_bytes(tensor)),
        flags,
        None if grad is None or not sendable(grad) else hash(_bytes(grad)),
        version,
    )


def content(packer, tensor, key, again, bumped=True):
    """What is sent of a tensor: its elements, and where its history begins."""
    data = tensor.detach()
    if tensor.is_leaf:
        grad = tensor.grad
        grad = None if grad is None or not sendable(grad) else grad.detach()
        return data, "leaf", bumped, tensor.requires_grad, type(tensor) is torch.nn.Parameter, grad
    if again:
        return data, "data", bumped
    if packer.kind == "?":
        return data, "leaf", True, True, False, None
    keys, leaves, own = _history(packer.here, tensor)
    packer.here.graphs[key] = (tensor, leaves, own)
    return data, "graph", keys, bool(own)


def _history(here, tensor):
    """The leaves that a tensor depends on: keys and tensors of those that both sides have, tensors of the others."""
    keys, leaves, own = [], [], []
    stack, seen = [tensor.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if len(seen) > _NODES:
            raise Refused(f"the history of a tensor has more than {_NODES} steps")
        leaf = getattr(node, "variable", None) if not node.next_functions else None
        if leaf is not None:
            key = here.find(leaf)
            if key is None:
                own.append(leaf)
            else:
                keys.append(key)
                leaves.append(leaf)
        stack.extend(n for n, _ in node.next_functions)
    return keys, leaves, own


def _checked(content):
    if type(content) is not tuple or len(content) < 2 or type(content[0]) is not torch.Tensor:
        raise Garbled("no tensor")
    data, kind, *rest = content
    if kind == "data" and len(rest) == 1 and type(rest[0]) is bool:
        return content
    if kind == "leaf" and len(rest) == 4 and all(type(flag) is bool for flag in rest[:3]):
        floating = data.is_floating_point() or data.is_complex()
        if rest[1] and not floating:
            raise Garbled("a gradient of whole numbers")
        grad = rest[3]
        if grad is None or (type(grad) is torch.Tensor and grad.shape == data.shape and grad.dtype == data.dtype):
            return content
    if kind == "graph" and len(rest) == 2 and type(rest[0]) is list and type(rest[1]) is bool:
        if all(type(key) is int for key in rest[0]) and (data.is_floating_point() or data.is_complex()):
            return content
    raise Garbled("no tensor")


def make(reader, key, content):
    data, kind, *rest = _checked(content)
    here = reader.here
    if kind == "leaf":
        _, requires_grad, parameter, grad = rest
        if parameter:
            data = torch.nn.Parameter(data, requires_grad=requires_grad)
        else:
            data.requires_grad_(requires_grad)
        data.grad = grad
        return data
    if kind == "data":
        return data
    leaves, places = [], []
    for place, number in enumerate(rest[0]):
        link = here.links.get(number)
        leaf = link.get() if link is not None and link.letter == "x" else None
        if leaf is not None and leaf.requires_grad:
            leaves.append(leaf)
            places.append(place)
    with torch.inference_mode(False), torch.enable_grad():
        own = rest[1] or len(leaves) < len(rest[0])  # leaves that have died here get their gradients there
        return _Across.apply(here, key, [data], places, here.anchor() if own else None, *leaves)


def change(reader, tensor, content):
    data, kind, *rest = _checked(content)
    here = reader.here
    if tensor.shape != data.shape or tensor.dtype != data.dtype:
        raise Changed("your code changed the type or shape of its argument")
    try:
        if _bytes(tensor) != _bytes(data):
            if not here.allow_change(tensor):
                return
            with torch.no_grad():
                (tensor if rest[0] else tensor.data).copy_(data)
        if kind == "leaf" and tensor.is_leaf:
            _, requires_grad, _, grad = rest
            if requires_grad != tensor.requires_grad:
                if not here.allow_change(tensor):
                    return
                tensor.requires_grad_(requires_grad)
            mine = tensor.grad
            if (grad is None) != (mine is None) or (grad is not None and _bytes(grad) != _bytes(mine)):
                tensor.grad = grad
    except (RuntimeError, TypeError) as error:
        raise Changed(f"your code changed its argument, which cannot be done to the original: {error}"[:300]) from None


def vjp(here, key, places, cotangent, task):
    """The gradients of the leaves in these places; those of other leaves are kept until `accumulate`."""
    if type(key) is not int or key not in here.graphs or type(task) is not int:
        raise Garbled("a gradient of something that is not kept")
    tensor, common, own = here.graphs[key]
    if type(places) is not list or not all(type(i) is int and 0 <= i < len(common) for i in places):
        raise Garbled("a gradient of a leaf that is none")
    leaves = [common[i] for i in places]
    own = own + [leaf for i, leaf in enumerate(common) if i not in places]
    if type(cotangent) is not torch.Tensor or cotangent.shape != tensor.shape or cotangent.dtype != tensor.dtype:
        raise Garbled("a cotangent of another shape")
    before, here.task = here.task, task
    try:
        found = torch.autograd.grad(tensor, [*leaves, *own], cotangent, retain_graph=True, allow_unused=True)
    finally:
        here.task = before
    here.stash = [(t, leaf, g) for t, leaf, g in here.stash if t == task]
    here.stash += [(task, leaf, g) for leaf, g in zip(own, found[len(leaves) :], strict=True) if g is not None]
    return list(found[: len(leaves)])


def accumulate(here, task):
    """The backward pass was one that adds to the gradients of leaves: add the own ones."""
    stash, here.stash = here.stash, []
    before, here.task = here.task, task
    try:
        for number, leaf, gradient in stash:
            if number != task:
                continue
            if leaf is here._anchor:
                here.ask("accumulate", (task,))
            else:
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
    finally:
        here.task = before


def node_key(here, value):
    """The key of the history whose node this is, if it leads into the other process."""
    return value.key if type(value) is _Across._backward_cls and value.here is here else None


def modes():
    out = {}
    if not torch.is_grad_enabled():
        out["grad"] = False
    if torch.is_inference_mode_enabled():
        out["inference"] = True
    if torch.get_default_dtype() is not torch.float32:
        out["dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    if torch._C._len_torch_function_stack() and (device := torch.get_default_device()).type != "cpu":
        out["device"] = str(device)
    return out


@contextlib.contextmanager
def applied(modes, trusted):
    """The modes of the other side, here, as long as a question takes."""
    with contextlib.ExitStack() as stack:
        if modes.get("grad") is False:
            stack.enter_context(torch.no_grad())
        if modes.get("inference") is True:
            stack.enter_context(torch.inference_mode())
        if modes.get("dtype") in _FLOATS:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(getattr(torch, modes["dtype"]))
        if type(modes.get("device")) is str and not trusted:
            stack.enter_context(torch.device(modes["device"]))
        yield
