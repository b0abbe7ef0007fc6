"""The models and tokenizers that `recipes.mlm` trains."""

import dataclasses

from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import MaskedLM
from mlp_mixers.models import preset_folder
from recipes import text_models
from recipes.checks import dashed

# What changes in a trained model without another shape of its weights.
FREE = ("mask_padding", "dropout_rate")


def tokenizer_for(settings, documents, source):
    """The tokenizer of the model that is gone on with, of a file, or new.

    Raises:
        ValueError: If there is none, or another one is asked for than the
            model's.
    """
    if source is None:
        return text_models.tokenizer_for(settings, documents)
    for name in ("tokenizer", "vocabulary_size"):
        if getattr(settings, name) is not None:
            raise ValueError(
                "A trained model has its tokenizer: give --from without "
                f"--{dashed(name)}."
            )
    return text_models.tokenizer_in(source)


def changed_sizes(model):
    """What the settings change in a model: arguments of its backbone."""
    others = ("model", "preset", "from_")
    return {
        name: value
        for name, value in dataclasses.asdict(model).items()
        if value is not None and name not in others
    }


def build(config, tokenizer, length, source):
    """The masked language model that the settings ask for.

    Args:
        config: A `Config` of `recipes.mlm_settings`.
        tokenizer: A `Tokenizer`.
        length: Tokens in a row, of a new model; `None` for the preset's.
        source: Folder of a preset with trained weights, or `None`.

    Raises:
        ValueError: If there is no such model.
    """
    if source is not None:
        check_sizes(config.model, source)
        model = MaskedLM.from_preset(source, **changed_sizes(config.model))
        text_models.check_finite(model, source)
        return model
    changes = changed_sizes(config.model)
    changes["vocabulary_size"] = tokenizer.vocabulary_size
    if length is not None:
        changes["sequence_length"] = length
    kind = config.model.model or "gmlp"
    preset = config.model.preset
    preset = preset or ("amlp_nano_en" if kind == "amlp" else "gmlp_nano_en")
    if kind == "bert":
        return build_bert(preset, tokenizer, changes)
    backbone = GMLPTextBackbone.from_preset(
        preset, load_weights=False, **changes
    )
    if kind == "amlp" and backbone.attention_dim is None:
        raise ValueError(
            "An aMLP has attention: give an aMLP's --preset, or "
            f"--attention-dim. Received: --model amlp --preset {preset}"
        )
    return GMLPMaskedLM(backbone, tokenizer=tokenizer)


def check_sizes(model, source):
    """Raises a ValueError if a trained model is asked to be another one."""
    for name in ("model", "preset"):
        if getattr(model, name) is not None:
            raise ValueError(
                f"{model.from_} says itself which model it is: give --from "
                f"without --{dashed(name)}."
            )
    _, own = preset_folder.read_description(source, preset_folder.BACKBONE_FILE)
    for name, value in changed_sizes(model).items():
        if name in own and (name in FREE or own[name] == value):
            continue
        has = f"has {name}={own[name]}" if name in own else "has no such part"
        raise ValueError(
            f"{model.from_} {has}, and its weights fit nothing else: give "
            f"--from without --{dashed(name)}. Received: {name}={value}"
        )


def build_bert(preset, tokenizer, changes):
    """KerasHub's BERT, of the size of a gMLP preset unless it is given."""
    from recipes import bert_baseline

    unknown = {"gate", "toeplitz", "mask_padding", "attention_dim"} & {*changes}
    if unknown:
        raise ValueError(
            "BERT has no such part. "
            f"Received: --model bert with {', '.join(sorted(unknown))}"
        )
    named = ("vocabulary_size", "sequence_length", "num_layers", "hidden_dim")
    shared = {name: changes[name] for name in named if name in changes}
    if preset not in GMLPTextBackbone.presets:
        raise ValueError(
            "BERT takes its size from a gMLP for text: one of "
            f"{', '.join(GMLPTextBackbone.presets)}. Received: {preset}"
        )
    config = {**GMLPTextBackbone.presets[preset]["config"], **shared}
    sizes = {name: config[name] for name in named}
    if "intermediate_dim" not in changes:
        equal = GMLPTextBackbone(**config).count_params()
        changes["intermediate_dim"] = bert_baseline.equal_intermediate_dim(
            equal, **sizes
        )
    heads = max(1, sizes["hidden_dim"] // 64)
    backbone = bert_baseline.BertTextBackbone(
        **{"num_heads": heads, **sizes, **changes}
    )
    return bert_baseline.BertMaskedLM(backbone, tokenizer=tokenizer)
