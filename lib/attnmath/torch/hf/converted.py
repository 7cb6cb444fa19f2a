"""A model of another library as one of our functions."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature

import torch

from attnmath.cache import length
from attnmath.tree import map_tree


@dataclass(frozen=True)
class Converted:
    """One of our functions with the parameters and options that make it equal to a model of `transformers`.

    Parameters
    ----------
    function : the function's name in both worlds: ``"bert"``, ``"masked_language_model"``, ``"decoder_only"``,
        ``"transformer"`` or, for pictures, ``"vision_encoder"`` and ``"vision_transformer"``; ``"clip"`` for pictures
        and texts.
    params : its tree of parameters, tensors that are functions of the model's own, so that gradients reach those.
    heads : number of query heads, of CLIP's pictures and texts.
    keywords : ``keywords(world)`` gives the function's keywords, with parts of `attnmath.numpy` or `attnmath.torch`; if
        the model has them, also for ``positions`` and ``segments`` of tokens.
    """

    function: str
    params: dict
    heads: int | tuple[int, int]
    keywords: Callable

    def __call__(
        self, *ids, mask=None, positions=None, segments=None, params: dict | None = None, world=None, **options
    ):
        """Call the function: on ids (source and target for an encoder-decoder) and a mask of tokens (of the source).

        ``positions`` and ``segments`` are integers of the ids' shape: ``position_ids`` and ``token_type_ids`` there.
        In the NumPy world give arrays, with ``params=to_numpy(converted.params)``, and get the pair of value and vjp.
        Options go before the model's own: ``record``, ``cache`` or another ``attend``.
        """
        world = import_module("attnmath.torch") if world is None else world
        params = self.params if params is None else params
        keywords = self.keywords(world, **self._known(mask=mask, positions=positions, segments=segments))
        masks = () if mask is None else (mask,)
        return getattr(world, self.function)(*ids, params, self.heads, *masks, **keywords | options)

    def _known(self, mask, **given):
        """What is given and the model has; a mask is everybody's, and only some count positions by it."""
        known = signature(self.keywords).parameters
        given = {name: X for name, X in given.items() if X is not None}
        for name in given:
            if name not in known:
                raise ValueError(f"{name} are given, but this model has none: leave them out")
        return given | ({"mask": mask} if "mask" in known else {})

    @torch.no_grad()
    def greedy(self, ids, count: int, mask=None, *, start: int | None = None, end: int | None = None):
        """The most probable next token, ``count`` times, with a cache.

        Of the prompt, only the last row's logits are computed.

        Parameters
        ----------
        ids : (b, n) prompts or, for an encoder-decoder, sources.
        count : how many tokens at most.
        mask : (b, n) boolean, True for a token; prompts are padded at their left, sources where one likes.
        start : for an encoder-decoder, the token before the first one.
        end : the token after the last one: a row that has it is filled with it, and once all have it this stops.

        Returns
        -------
        tokens : (b, m), m <= count, without the prompt.

        Raises
        ------
        ValueError
            If the model does not decode, if a start is missing or too much, or if a prompt does not end with a token.
        """
        predict, step = self._decoding(ids, mask, start)
        ended, made = torch.zeros(len(ids), dtype=torch.bool, device=ids.device), []
        while len(made) < count and not (made and bool(ended.all())):
            tokens = predict(step).argmax(-1)
            if end is not None:
                tokens = torch.where(ended, end, tokens)
                ended = tokens == end
            made.append(tokens)
            step = tokens[:, None]
        return torch.stack(made, -1) if made else ids[:, :0]

    def _decoding(self, ids, mask, start):
        """``predict(step) -> (b, t)`` logits, with a cache of its own, and the first step."""
        if self.function not in ("decoder_only", "transformer"):
            raise ValueError(f"this model is a {self.function}, which does not decode")
        if (start is None) == (self.function == "transformer"):
            raise ValueError("start is the token before an encoder-decoder's target: only these need one")
        world, params, cache = import_module("attnmath.torch"), map_tree(torch.Tensor.detach, self.params), {}
        if self.function == "transformer":
            keywords = self.keywords(world)
            memory = world.encode(ids, params, self.heads, mask, **keywords)

            def predict(step):
                return world.decode(step, memory, params, self.heads, mask, cache=cache, **keywords)[:, -1]

            return predict, ids.new_full((len(ids), 1), start)
        if mask is not None and not bool(mask[:, -1].all()):
            raise ValueError("mask ends with padding: prompts of a batch are padded at their left")
        head = world.last_row(self.keywords(world).get("head", world.logits))

        def predict(step):
            options = {"params": params, "cache": cache, "head": head}
            if mask is not None:
                after = mask.new_ones(len(mask), length(cache) + step.shape[-1] - mask.shape[-1])
                options["mask"] = tokens = torch.cat([mask, after], -1)
                options["positions"] = (tokens.cumsum(-1) - 1).clamp(min=0)[:, -step.shape[-1] :]
            return self(step, **options)[:, -1]

        return predict, ids
