"""Sizes with names. A preset is a class name and its constructor's arguments.

`parameters` counts the backbone alone. `weights` says where public weights can
be had, how many classes they know and how their images were normalised
((x - mean) / std for x in [0, 1]); it is `None` where there are none.
"""


def _timm(name, mean, std):
    """Weights that timm publishes on the Hugging Face hub, for ImageNet."""
    return {
        "repository": f"timm/{name}",
        "num_classes": 1000,
        "mean": mean,
        "std": std,
    }


_HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

_GMLP_224 = {"image_shape": (224, 224, 3), "patch_size": 16, "num_layers": 30}
_MIXER_224 = {"image_shape": (224, 224, 3), "patch_size": 16}
_RESMLP_224 = {
    "image_shape": (224, 224, 3),
    "patch_size": 16,
    "hidden_dim": 384,
    "intermediate_dim": 1536,
}
_DIGITS = {"image_shape": (8, 8, 1), "patch_size": 2, "num_layers": 4}
_EN = {"vocabulary_size": 32_000, "sequence_length": 512}
_EN_NANO = {
    "vocabulary_size": 8_000,
    "sequence_length": 128,
    "num_layers": 6,
    "hidden_dim": 128,
    "intermediate_dim": 768,
}
_CIFAR = {"image_shape": (32, 32, 3), "patch_size": 4, "hidden_dim": 96}

PRESETS = {
    # Pay Attention to MLPs, Table 1. The classifiers with 1000 classes have
    # 5,867,328, 19,422,656 and 73,075,392 parameters.
    "gmlp_tiny_224": {
        "class_name": "GMLPBackbone",
        "description": "gMLP-Ti/16, 30 layers, ImageNet size.",
        "parameters": 5_738_328,
        "weights": None,
        "config": {**_GMLP_224, "hidden_dim": 128, "intermediate_dim": 768},
    },
    "gmlp_small_224": {
        "class_name": "GMLPBackbone",
        "description": "gMLP-S/16, 30 layers, ImageNet size.",
        "parameters": 19_165_656,
        "weights": _timm("gmlp_s16_224.ra3_in1k", **_HALF),
        "config": {
            **_GMLP_224,
            "hidden_dim": 256,
            "intermediate_dim": 1536,
            "drop_path_rate": 0.05,
        },
    },
    "gmlp_base_224": {
        "class_name": "GMLPBackbone",
        "description": "gMLP-B/16, 30 layers, ImageNet size.",
        "parameters": 72_562_392,
        "weights": None,
        "config": {
            **_GMLP_224,
            "hidden_dim": 512,
            "intermediate_dim": 3072,
            "drop_path_rate": 0.2,
        },
    },
    # MLP-Mixer, Table 1. The classifiers with 1000 classes have 18,528,264
    # and 59,880,472 parameters.
    "mixer_small_224": {
        "class_name": "MixerBackbone",
        "description": "Mixer-S/16, 8 layers, ImageNet size.",
        "parameters": 18_015_264,
        "weights": None,
        "config": {
            **_MIXER_224,
            "num_layers": 8,
            "hidden_dim": 512,
            "token_intermediate_dim": 256,
            "intermediate_dim": 2048,
        },
    },
    "mixer_base_224": {
        "class_name": "MixerBackbone",
        "description": "Mixer-B/16, 12 layers, ImageNet size.",
        "parameters": 59_111_472,
        "weights": _timm("mixer_b16_224.goog_in21k_ft_in1k", **_HALF),
        "config": {
            **_MIXER_224,
            "num_layers": 12,
            "hidden_dim": 768,
            "token_intermediate_dim": 384,
            "intermediate_dim": 3072,
        },
    },
    # ResMLP, Sec. 3. The classifiers with 1000 classes have 15,350,872,
    # 30,020,680 and 44,690,488 parameters.
    "resmlp_12_224": {
        "class_name": "ResMLPBackbone",
        "description": "ResMLP-S12, 12 layers, ImageNet size.",
        "parameters": 14_965_872,
        "weights": _timm("resmlp_12_224.fb_in1k", **_IMAGENET),
        "config": {**_RESMLP_224, "num_layers": 12},
    },
    "resmlp_24_224": {
        "class_name": "ResMLPBackbone",
        "description": "ResMLP-S24, 24 layers, ImageNet size.",
        "parameters": 29_635_680,
        "weights": _timm("resmlp_24_224.fb_in1k", **_IMAGENET),
        "config": {**_RESMLP_224, "num_layers": 24},
    },
    "resmlp_36_224": {
        "class_name": "ResMLPBackbone",
        "description": "ResMLP-S36, 36 layers, ImageNet size.",
        "parameters": 44_305_488,
        "weights": _timm("resmlp_36_224.fb_in1k", **_IMAGENET),
        "config": {**_RESMLP_224, "num_layers": 36},
    },
    # Ours, for a laptop.
    "gmlp_digits_nano": {
        "class_name": "GMLPBackbone",
        "description": "4 blocks on the 8x8 digits of scikit-learn.",
        "parameters": 152_832,
        "weights": None,
        "config": {**_DIGITS, "hidden_dim": 64, "intermediate_dim": 384},
    },
    "amlp_digits_nano": {
        "class_name": "GMLPBackbone",
        "description": "The same with tiny attention of width 16.",
        "parameters": 178_368,
        "weights": None,
        "config": {
            **_DIGITS,
            "hidden_dim": 64,
            "intermediate_dim": 384,
            "attention_dim": 16,
        },
    },
    "gmlp_cifar_nano": {
        "class_name": "GMLPBackbone",
        "description": "8 blocks on 32x32 colour images in 4x4 patches.",
        "parameters": 713_248,
        "weights": None,
        "config": {**_CIFAR, "num_layers": 8, "intermediate_dim": 576},
    },
    # The two below have the width and within 2% the size of the one above.
    "mixer_cifar_nano": {
        "class_name": "MixerBackbone",
        "description": "8 Mixer blocks on 32x32 colour images.",
        "parameters": 701_216,
        "weights": None,
        "config": {
            **_CIFAR,
            "num_layers": 8,
            "token_intermediate_dim": 96,
            "intermediate_dim": 384,
        },
    },
    "resmlp_cifar_nano": {
        "class_name": "ResMLPBackbone",
        "description": "9 ResMLP blocks on 32x32 colour images.",
        "parameters": 715_392,
        "weights": None,
        "config": {**_CIFAR, "num_layers": 9, "intermediate_dim": 384},
    },
    # Pay Attention to MLPs, Table 5. A masked language model has no more
    # parameters than its backbone: the embedding is the output too.
    "gmlp_base_en": {
        "class_name": "GMLPTextBackbone",
        "description": "gMLP-base, 48 layers, 512 tokens of 32,000.",
        "parameters": 130_073_552,
        "weights": None,
        "config": {
            **_EN,
            "num_layers": 48,
            "hidden_dim": 512,
            "intermediate_dim": 3072,
        },
    },
    "amlp_base_en": {
        "class_name": "GMLPTextBackbone",
        "description": "aMLP-base, 36 layers, 512 tokens of 32,000.",
        "parameters": 108_791_516,
        "weights": None,
        "config": {
            **_EN,
            "num_layers": 36,
            "hidden_dim": 512,
            "intermediate_dim": 3072,
            "attention_dim": 64,
        },
    },
    "gmlp_large_en": {
        "class_name": "GMLPTextBackbone",
        "description": "gMLP-large, 96 layers, 512 tokens of 32,000.",
        "parameters": 365_274_528,
        "weights": None,
        "config": {
            **_EN,
            "num_layers": 96,
            "hidden_dim": 768,
            "intermediate_dim": 3072,
        },
    },
    "amlp_large_en": {
        "class_name": "GMLPTextBackbone",
        "description": "aMLP-large, 72 layers, 512 tokens of 32,000.",
        "parameters": 315_627_960,
        "weights": None,
        "config": {
            **_EN,
            "num_layers": 72,
            "hidden_dim": 768,
            "intermediate_dim": 3072,
            "attention_dim": 128,
        },
    },
    "gmlp_xlarge_en": {
        "class_name": "GMLPTextBackbone",
        "description": "gMLP-xlarge, 144 layers, 512 tokens of 32,000.",
        "parameters": 940_582_768,
        "weights": None,
        "config": {
            **_EN,
            "num_layers": 144,
            "hidden_dim": 1024,
            "intermediate_dim": 4096,
        },
    },
    # Ours, for a laptop.
    "gmlp_nano_en": {
        "class_name": "GMLPTextBackbone",
        "description": "6 blocks of width 128 on 128 tokens of 8,000.",
        "parameters": 1_922_810,
        "weights": None,
        "config": {**_EN_NANO},
    },
    "amlp_nano_en": {
        "class_name": "GMLPTextBackbone",
        "description": "The same with tiny attention of width 32.",
        "parameters": 2_073_146,
        "weights": None,
        "config": {**_EN_NANO, "attention_dim": 32},
    },
    # Ours too: the paper does not tell the sizes of its models.
    "smlp_nano_en": {
        "class_name": "SMLPBackbone",
        "description": "4 dense and 2 sparse blocks of 8 experts; it writes.",
        "parameters": 5_413_384,
        "weights": None,
        "config": {
            "vocabulary_size": 8_000,
            "sequence_length": 128,
            "num_dense_blocks": 4,
            "num_sparse_blocks": 2,
            "hidden_dim": 128,
            "intermediate_dim": 768,
            "num_experts": 8,
        },
    },
}
