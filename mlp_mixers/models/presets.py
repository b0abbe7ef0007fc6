"""Sizes with names. A preset is a class name and its constructor's arguments.

`parameters` counts the backbone alone; `weights` says where public weights
can be had, `None` where there are none.
"""

_GMLP_224 = {"image_shape": (224, 224, 3), "patch_size": 16, "num_layers": 30}
_DIGITS = {"image_shape": (8, 8, 1), "patch_size": 2, "num_layers": 4}

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
        "weights": None,
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
        "config": {
            "image_shape": (32, 32, 3),
            "patch_size": 4,
            "num_layers": 8,
            "hidden_dim": 96,
            "intermediate_dim": 576,
        },
    },
}
