"""Models of `transformers` as functions of this library: parameters renamed, transposed and, where needed, folded.

============================ ======================= ===================================================================
theirs                       ours                    what the conversion does besides renaming
============================ ======================= ===================================================================
BartForConditionalGeneration `transformer`           transposes; skips two positions; has a norm of what is embedded
BertForMaskedLM              `masked_language_model` as BertModel, with the head that fills in blanks
BertModel                    `bert`                  transposes linear maps; leaves the pooler out
CLIPModel                    `clip`                  its towers as in the next two lines, with projections as heads
CLIPTextModel                `decoder_only`          transposes; gives hidden states
CLIPVisionModel              `vision_encoder`        flattens the convolution of the patches; leaves the pooled row out
DistilBertModel              `bert`                  transposes; there are no segments
Gemma2ForCausalLM            `decoder_only`          as Llama; adds 1 to the gains of norms, which stand on both sides
GPT2LMHeadModel              `decoder_only`          cuts the joint query-key-value map in three (not transposed there)
LlamaForCausalLM             `decoder_only`          transposes linear maps; rotary positions in the "half" pairing
MistralForCausalLM           `decoder_only`          as Llama; windows
MixtralForCausalLM           `decoder_only`          as Mistral; cuts the experts' joint gate and up map in two
OPTForCausalLM               `decoder_only`          transposes; skips two positions, and does not count padding
Qwen2ForCausalLM             `decoder_only`          as Llama; windows in the upper layers, if it has them
Qwen3ForCausalLM             `decoder_only`          as Qwen2; norms of queries and keys
RobertaModel                 `bert`                  as BERT; positions count the tokens that are not padding
StableLmForCausalLM          `decoder_only`          as Llama; orders the components of heads that are turned in part
T5ForConditionalGeneration   `transformer`           transposes; scores are not scaled; multiplies the decoder's last
                                                     gain by d^-1/2 if T5 scales its outputs by that
ViTForImageClassification    `vision_transformer`    flattens the convolution of the patches
ViTModel                     `vision_encoder`        the same; leaves the pooler out
============================ ======================= ===================================================================

Weights tied there are one leaf here, unless a padding token's word vector gets no gradient there: then it gets none
here either. `transformers` itself is not imported: the model brings it.
"""

from importlib import import_module
from pkgutil import iter_modules

from torch import nn

from attnmath.torch.hf.converted import Converted
from attnmath.torch.hf.pytorch import load_nn

__all__ = ["CONVERTERS", "Converted", "load_hf", "load_nn"]

# Every module of this package names the classes that it converts: one for a new family is found, and no file is edited.
CONVERTERS = {}
for _found in iter_modules(__path__):
    CONVERTERS |= getattr(import_module(f"{__name__}.{_found.name}"), "CONVERTERS", {})


def load_hf(model: nn.Module) -> Converted:
    """A model of `transformers`, with its weights, as a function of this library.

    Parameters
    ----------
    model : of one of the classes in the table of this module.

    Returns
    -------
    converted : call it on token ids; it gives hidden states (BERT) or logits, without dropout.

    Raises
    ------
    ValueError
        If the model is of another class, or its configuration asks for something that our function does not do.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> sizes = {"vocab_size": 11, "n_positions": 5, "n_embd": 4, "n_layer": 1, "n_head": 2, "eos_token_id": 0}
    >>> gpt2 = load_hf(GPT2LMHeadModel(GPT2Config(**sizes)))
    >>> gpt2(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 11])
    """
    name = type(model).__name__
    if name not in CONVERTERS:
        raise ValueError(f"model is a {name}; expected one of {', '.join(sorted(CONVERTERS))}")
    return CONVERTERS[name](model, model.config)
