"""PyTorch across the wall: gradients flow through a call into the other process, in both directions.

A result that has a history is, on the side that asked, the output of an `autograd.Function`: its inputs are the tensors
that this side has given, its backward pass asks the other side for their gradients. Parameters that the other side
keeps to itself get theirs there, once it is certain that ``backward()`` and not ``autograd.grad`` is at work: a leaf
without use, the anchor, is an input too, and only ``backward()`` adds to the gradient of a leaf.

This module is imported only where torch is.
"""

import weakref

import torch

from . import links
from .plugins import CannotSend, Changed, Garbled, Plugin

__all__ = ["Values"]

_NAMES = tuple("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split())
_DTYPES = {getattr(torch, name) for name in _NAMES}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_NODES = 200_000  # of a history


class _Token:
    """Dies with the history that holds it."""


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, key, box, places, anchor, *leaves):
        ctx.values, ctx.key, ctx.places, ctx.token = values, key, places, _Token()
        ctx.like = [(leaf.shape, leaf.dtype) for leaf in leaves]
        weakref.finalize(ctx.token, _drop, weakref.ref(values), key).atexit = False
        return box[0]

    @staticmethod
    def backward(ctx, cotangent):
        here = ctx.values.here
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: second derivatives of an answer are not followed into its process; "
                "run this test sandboxed"
            )
        found = here.ask("vjp", (ctx.key, list(ctx.places), cotangent.detach(), ctx.values.pass_under_way()))
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


def _drop(values, key):
    if (values := values()) is not None:
        values.here.links.drops[key, links.HISTORY] = None


def _sendable(value):
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return False
    return value.dtype in _DTYPES and value.layout is torch.strided and not value.is_meta


def _bytes(tensor):
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    plain = plain.clone(memory_format=torch.contiguous_format)  # one entry counts as contiguous whatever its stride is
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _hash(tensor):
    return None if tensor is None or not _sendable(tensor) else hash(_bytes(tensor))


class Values(Plugin):
    """Tensors, and what of a history belongs to this side."""

    letter = "x"
    kinds = torch.Tensor, torch.dtype, torch.device

    def __init__(self, exchange):
        super().__init__(exchange)
        self.verbs = {"vjp": self.vjp, "accumulate": self.accumulate}
        self.graphs = {}  # results with a history, by key: (tensor, leaves of the other side, own leaves)
        self.stash = []  # gradients of own leaves, before it is known whether they are wanted
        self.task = None  # the backward pass under way on the side that began it
        self._anchor = None

    # ---- values that are sent as others

    def node(self, packer, value):
        kind = type(value)
        if isinstance(value, torch.Tensor):
            if not _sendable(value):
                return None
            return packer.shared("x", value, cut=packer.kind == "?" and value.grad_fn is not None)
        if kind is torch.Size:
            return ("n", "size", tuple(int(d) for d in value))
        if kind is torch.dtype:
            name = str(value).removeprefix("torch.")
            return ("n", "torch", name) if name in _NAMES else None
        if kind is torch.device and value.type == "cpu":
            return ("n", "device", "cpu")
        if value is torch.Tensor:
            return ("n", "type", "torch.Tensor")
        if kind is _Across._backward_cls and value.values is self:
            return ("g", value.key)
        return None

    def constant(self, family, name):
        if family == "size" and type(name) is tuple and len(name) <= 64:
            if all(type(x) is int and 0 <= x < 2**62 for x in name):
                return torch.Size(name)
        if type(name) is not str:
            return None
        if family == "type" and name == "torch.Tensor":
            return torch.Tensor
        if family == "torch" and name in _NAMES:
            return getattr(torch, name)
        return torch.device("cpu") if family == "device" and name == "cpu" else None

    def by_number(self, letter, number):
        return self.graphs[number][0].grad_fn if letter == "g" and number in self.graphs else None

    def forget(self, key):
        self.graphs.pop(key, None)

    # ---- values that are followed

    def state(self, value):
        grad = value.grad if value.is_leaf else None
        flags = value.requires_grad if value.is_leaf else None
        version = None if value.is_inference() else value._version  # autograd's own count of changes in place
        return value.shape, value.dtype, _hash(value), flags, _hash(grad), version

    def bumped(self, old, new):
        return old[-1] != new[-1]

    def content(self, packer, value, key, again, bumped):
        """The elements of a tensor, and where its history begins."""
        data = value.detach()
        if value.is_leaf:
            grad = value.grad
            grad = None if grad is None or not _sendable(grad) else grad.detach()
            return data, "leaf", bumped, value.requires_grad, type(value) is torch.nn.Parameter, grad
        if again:
            return data, "data", bumped
        if packer.kind == "?":
            return data, "leaf", True, True, False, None
        keys, leaves, own = self._history(value)
        self.graphs[key] = (value, leaves, own)
        return data, "graph", keys, bool(own)

    def _history(self, tensor):
        """The leaves that a tensor depends on: keys and tensors of those that both sides have, the others' tensors."""
        keys, leaves, own = [], [], []
        stack, seen = [tensor.grad_fn], set()
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if len(seen) > _NODES:
                raise CannotSend(f"the history of a tensor has more than {_NODES} steps")
            leaf = getattr(node, "variable", None) if not node.next_functions else None
            if leaf is not None:
                key = self.here.links.key_of(leaf)
                if key is None:
                    own.append(leaf)
                else:
                    keys.append(key)
                    leaves.append(leaf)
            stack.extend(n for n, _ in node.next_functions)
        return keys, leaves, own

    def made(self, key, content):
        data, kind, *rest = _checked(content)
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
            link = self.here.links.get(number)
            leaf = link.get() if link is not None and link.letter == "x" else None
            if leaf is not None and leaf.requires_grad:
                leaves.append(leaf)
                places.append(place)
        with torch.inference_mode(False), torch.enable_grad():
            own = rest[1] or len(leaves) < len(rest[0])  # leaves that have died here get their gradients there
            return _Across.apply(self, key, [data], places, self.anchor() if own else None, *leaves)

    def change(self, value, content, *, lasting):
        data, kind, *rest = _checked(content)
        if value.shape != data.shape or value.dtype != data.dtype:
            raise Changed("your code changed the type or shape of its argument")
        try:
            if _bytes(value) != _bytes(data):
                with torch.no_grad():
                    (value if rest[0] and lasting else value.data).copy_(data)
            if kind == "leaf" and value.is_leaf:
                _, requires_grad, _, grad = rest
                if lasting and requires_grad != value.requires_grad:
                    value.requires_grad_(requires_grad)
                if _hash(grad) != _hash(value.grad):
                    value.grad = grad
        except (RuntimeError, TypeError) as error:
            why = f"your code changed its argument, which cannot be done to the original: {error}"
            raise Changed(why[:300]) from None

    def snapshot(self, value):
        return value.detach().clone()

    def put_back(self, value, before):
        if _bytes(value) == _bytes(before):
            return False
        new, old = (each.detach().cpu().resolve_conj().resolve_neg() for each in (value, before))
        if new.dtype is torch.bfloat16:
            new, old = new.float(), old.float()
        rounded = links.close(new.numpy().copy(), old.numpy())
        value.data.copy_(before)
        return not rounded

    # ---- sizes, modes, words

    def nbytes(self, value):
        return value.nbytes if isinstance(value, torch.Tensor) else None

    def modes(self):
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

    def applied(self, modes, stack):
        flags = [modes.get("grad", True), modes.get("inference", False)]
        dtype, device = modes.get("dtype", "float32"), modes.get("device", "cpu")
        if not all(type(flag) is bool for flag in flags) or not type(dtype) is type(device) is str:
            raise Garbled("no modes")
        if not flags[0]:
            stack.enter_context(torch.no_grad())
        if flags[1]:
            stack.enter_context(torch.inference_mode())
        if "dtype" in modes and dtype in _FLOATS:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(getattr(torch, dtype))
        if "device" in modes and not self.here.trusted:
            stack.enter_context(torch.device(device))

    def words(self, value, limit):
        if isinstance(value, torch.Tensor):
            text = f"tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
            few = 0 < value.numel() <= 12 and limit > 40
            return text, value.detach().cpu().tolist() if few else None
        return (str(value), None) if isinstance(value, torch.dtype | torch.Size) else None

    # ---- gradients

    def pass_under_way(self):
        """A number for the backward pass under way, wherever it began."""
        return self.task if self.task is not None else torch._C._current_graph_task_id()

    def anchor(self):
        """A leaf without use: that something is added to its gradient says that this is ``backward()``."""
        if self._anchor is None:
            leaf = torch.zeros((), requires_grad=True)
            values = weakref.ref(self)

            def added(leaf):
                leaf.grad = None
                if (mine := values()) is not None:
                    mine.here.ask("accumulate", (mine.pass_under_way(),))

            leaf.register_post_accumulate_grad_hook(added)
            self._anchor = leaf
        return self._anchor

    def vjp(self, key, places, cotangent, task):
        """The gradients of the leaves in these places; those of other leaves are kept until `accumulate`."""
        if type(key) is not int or key not in self.graphs or type(task) is not int:
            raise Garbled("a gradient of something that is not kept")
        tensor, common, own = self.graphs[key]
        if type(places) is not list or not all(type(i) is int and 0 <= i < len(common) for i in places):
            raise Garbled("a gradient of a leaf that is none")
        leaves = [common[i] for i in places]
        own = own + [leaf for i, leaf in enumerate(common) if i not in places]
        if type(cotangent) is not torch.Tensor or cotangent.shape != tensor.shape or cotangent.dtype != tensor.dtype:
            raise Garbled("a cotangent of another shape")
        before, self.task = self.task, task
        try:
            found = torch.autograd.grad(tensor, [*leaves, *own], cotangent, retain_graph=True, allow_unused=True)
        finally:
            self.task = before
        self.stash = [(t, leaf, g) for t, leaf, g in self.stash if t == task]
        self.stash += [(task, leaf, g) for leaf, g in zip(own, found[len(leaves) :], strict=True) if g is not None]
        return list(found[: len(leaves)])

    def accumulate(self, task):
        """The backward pass was one that adds to the gradients of leaves: add the own ones."""
        if type(task) is not int:
            raise Garbled("no backward pass")
        stash, self.stash = self.stash, []
        before, self.task = self.task, task
        try:
            for number, leaf, gradient in stash:
                if number != task:
                    continue
                if leaf is self._anchor:
                    self.here.ask("accumulate", (task,))
                else:
                    leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
        finally:
            self.task = before


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
