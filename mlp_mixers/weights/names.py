"""What other libraries call our weights.

A row is (our name, their name, form). Our name is the way through the layers'
names to the variable, `{i}` counts blocks, and the form says how the array
lies there (see `forms`). Whatever is not in a table does not exist there.
"""

import re

# timm's `MlpMixer`: stem, blocks, norm, head.
_STEM_AND_HEAD = [
    ("patch_embedding/dense/kernel", "stem.proj.weight", "patches"),
    ("patch_embedding/dense/bias", "stem.proj.bias", "same"),
    ("head/kernel", "head.weight", "transposed"),
    ("head/bias", "head.bias", "same"),
]


def _norm(ours, theirs):
    return [
        (f"{ours}/gamma", f"{theirs}.weight", "same"),
        (f"{ours}/beta", f"{theirs}.bias", "same"),
    ]


def _affine(ours, theirs):
    return [
        (f"{ours}/gamma", f"{theirs}.alpha", "leading_ones"),
        (f"{ours}/beta", f"{theirs}.beta", "leading_ones"),
    ]


def _dense(ours, theirs):
    return [
        (f"{ours}/kernel", f"{theirs}.weight", "transposed"),
        (f"{ours}/bias", f"{theirs}.bias", "same"),
    ]


def _spatial(ours, theirs):
    """W and b, which have no head axis there."""
    return [
        (f"{ours}/spatial_kernel", f"{theirs}.weight", "one_head"),
        (f"{ours}/spatial_bias", f"{theirs}.bias", "one_head"),
    ]


_TIMM = {
    "GMLPBackbone": [
        *_STEM_AND_HEAD,
        *_norm("output_norm", "norm"),
        *_norm("block_{i}/norm", "blocks.{i}.norm"),
        *_dense("block_{i}/intermediate_dense", "blocks.{i}.mlp_channels.fc1"),
        *_norm(
            "block_{i}/gating_unit/norm", "blocks.{i}.mlp_channels.gate.norm"
        ),
        *_spatial("block_{i}/gating_unit", "blocks.{i}.mlp_channels.gate.proj"),
        *_dense("block_{i}/output_dense", "blocks.{i}.mlp_channels.fc2"),
    ],
    "MixerBackbone": [
        *_STEM_AND_HEAD,
        *_norm("output_norm", "norm"),
        *_norm("block_{i}/token_norm", "blocks.{i}.norm1"),
        *_dense(
            "block_{i}/token_intermediate_dense", "blocks.{i}.mlp_tokens.fc1"
        ),
        *_dense("block_{i}/token_output_dense", "blocks.{i}.mlp_tokens.fc2"),
        *_norm("block_{i}/channel_norm", "blocks.{i}.norm2"),
        *_dense("block_{i}/intermediate_dense", "blocks.{i}.mlp_channels.fc1"),
        *_dense("block_{i}/output_dense", "blocks.{i}.mlp_channels.fc2"),
    ],
    "ResMLPBackbone": [
        *_STEM_AND_HEAD,
        *_affine("output_norm", "norm"),
        *_affine("block_{i}/token_norm", "blocks.{i}.norm1"),
        *_spatial("block_{i}/spatial_projection", "blocks.{i}.linear_tokens"),
        ("block_{i}/token_scale/gamma", "blocks.{i}.ls1", "same"),
        *_affine("block_{i}/channel_norm", "blocks.{i}.norm2"),
        *_dense("block_{i}/intermediate_dense", "blocks.{i}.mlp_channels.fc1"),
        *_dense("block_{i}/output_dense", "blocks.{i}.mlp_channels.fc2"),
        ("block_{i}/channel_scale/gamma", "blocks.{i}.ls2", "same"),
    ],
}


def _facebook(rows):
    """The ResMLP authors' own names, by how they differ from timm's."""
    changes = (
        ("stem.proj", "patch_embed.proj"),
        (".linear_tokens.", ".attn."),
        (".mlp_channels.", ".mlp."),
        (".ls1", ".gamma_1"),
        (".ls2", ".gamma_2"),
    )
    for ours, theirs, form in rows:
        for timm, facebook in changes:
            theirs = theirs.replace(timm, facebook)
        # Their Affine keeps plain vectors.
        yield ours, theirs, form.replace("leading_ones", "same")


# Layout -> class of the backbone -> rows.
LAYOUTS = {
    "timm": _TIMM,
    "facebook": {"ResMLPBackbone": list(_facebook(_TIMM["ResMLPBackbone"]))},
}

# Where the tokens are in our arrays: which axis counts tokens that come out,
# and which tokens that come in. By the end of the name.
TOKEN_AXES = {
    "spatial_kernel": {"output_axis": -2, "input_axis": -1},
    "spatial_bias": {"output_axis": -1},
    "token_intermediate_dense/kernel": {"input_axis": 0},
    "token_output_dense/kernel": {"output_axis": 1},
    "token_output_dense/bias": {"output_axis": 0},
}


def token_axes(name):
    """Which axes of a weight of ours count tokens; `{}` where none does."""
    for ending, axes in TOKEN_AXES.items():
        if name.endswith(ending):
            return axes
    return {}


def layouts_of(backbone):
    """The layouts that a backbone's class, or one above it, is known in.

    Returns:
        Dictionary from the layout to its rows.
    """
    found = {}
    for cls in type(backbone).__mro__:
        for layout, classes in LAYOUTS.items():
            if cls.__name__ in classes:
                found.setdefault(layout, classes[cls.__name__])
    return found


def translate(name, rows):
    """Their name and the form of a weight of ours.

    Returns:
        `(their name, form)`, or `None` if the table does not have it.
    """
    block = re.search(r"(?<=block_)\d+", name)
    number = block.group() if block else ""
    template = name.replace(f"block_{number}", "block_{i}", 1)
    for ours, theirs, form in rows:
        if ours == (template if block else name):
            return theirs.replace("{i}", number), form
    return None
