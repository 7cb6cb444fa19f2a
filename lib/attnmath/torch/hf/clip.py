"""CLIP as `clip`, and its towers alone: texts as `decoder_only` without logits, pictures as `vision_encoder`."""

from functools import partial

from attnmath.torch.hf import parts
from attnmath.torch.hf.converted import Converted


def layer(module):
    inner = module.self_attn
    return {
        "attention": parts.linears(inner, query="q_proj", key="k_proj", value="v_proj", output="out_proj"),
        "attention_norm": parts.norm(module.layer_norm1),
        "feed_forward": parts.linears(module.mlp, up="fc1", down="fc2"),
        "feed_forward_norm": parts.norm(module.layer_norm2),
    }


def hidden(world):
    """A head that gives the hidden states themselves."""
    if world.__name__ == "attnmath.torch":
        return lambda X, params: X
    return lambda X, params: (X, lambda dX: (dX, {}))


def text(model, config):
    table, activation = model.embeddings, parts.activation(config.hidden_act)
    embeddings = {"word": parts.words(table.token_embedding), "position": table.position_embedding.weight}
    params = {"embeddings": embeddings, "norm": parts.norm(model.final_layer_norm)}

    def keywords(world, positions=None):
        joint = parts.joint(world, "layer_norm", config.layer_norm_eps)
        embed = {"embed": partial(world.token_embedding, places=positions), "head": hidden(world)}
        return joint | parts.network(world, "feed_forward", activation) | embed

    params |= parts.layers(model.encoder.layers, layer)
    return Converted("decoder_only", params, config.num_attention_heads, keywords)


def pictures(model, config):
    parts.only(config, layer_norm_eps=1e-5)  # that of the norm of what is embedded
    table, activation = model.embeddings, parts.activation(config.hidden_act)
    embeddings = {
        "patch": {"weight": table.patch_embedding.weight.flatten(1).T},
        "class": table.class_embedding,
        "position": table.position_embedding.weight,
        "norm": parts.norm(model.pre_layrnorm),
    }
    params = {"embeddings": embeddings} | parts.layers(model.encoder.layers, layer)

    def keywords(world):
        joint = parts.joint(world, "layer_norm", config.layer_norm_eps)
        return joint | parts.network(world, "feed_forward", activation) | {"size": config.patch_size}

    return Converted("vision_encoder", params, config.num_attention_heads, keywords)


def whole(model, config):
    of_text, of_picture = text(model.text_model, config.text_config), pictures(model.vision_model, config.vision_config)
    of_picture.params["norm"] = parts.norm(model.vision_model.post_layernorm)  # of all rows, of which one is read
    for tower, projection in ((of_text, model.text_projection), (of_picture, model.visual_projection)):
        tower.params["head"] = parts.linear(projection)
    params = {"picture": of_picture.params, "text": of_text.params, "log_scale": model.logit_scale}
    end = config.text_config.eos_token_id

    def keywords(world, positions=None):
        of_words, of_patches = of_text.keywords(world, positions), of_picture.keywords(world)
        del of_words["head"]  # `clip` has its own
        size = of_patches.pop("size")
        # 2 stood in early configurations by mistake; the end is then the highest id, there as here
        return {"size": size, "end": None if end == 2 else end, "picture": of_patches, "text": of_words}

    return Converted("clip", params, (of_picture.heads, of_text.heads), keywords)


CONVERTERS = {"CLIPModel": whole, "CLIPTextModel": text, "CLIPVisionModel": pictures}
