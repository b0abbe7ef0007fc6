"""Other people's weights into our models, and ours into their names."""

import dataclasses
import fnmatch
import math
import os

import keras
import numpy as np

from mlp_mixers.weights import files
from mlp_mixers.weights import forms
from mlp_mixers.weights import names
from mlp_mixers.weights.resize import check_grid
from mlp_mixers.weights.resize import resize_spatial_weights

# Our own names, in our own form.
OWN = "mlp_mixers"


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load_checkpoint` did; `print` it.

    Attributes:
        layout: Whose names the source uses.
        loaded: Our names of the weights that were set.
        resized: `(our name, shape there, shape here)` of those among them
            that came from another grid of patches.
        grids: `(grid there, grid here)`, `None` if nothing was resized.
        skipped: Names left out on request: theirs, not used, and ours, not
            set.
    """

    layout: str
    loaded: tuple
    resized: tuple = ()
    grids: tuple | None = None
    skipped: tuple = ()

    def __str__(self):
        lines = [f"{len(self.loaded)} weights loaded ({self.layout} names)."]
        if self.resized:
            old, new = ("x".join(map(str, grid)) for grid in self.grids)
            lines.append(
                f"{len(self.resized)} of them resized from {old} to {new} "
                "patches: interpolated over both grids, sums over tokens kept."
            )
            changes = [f"{name}: {a} -> {b}" for name, a, b in self.resized]
            lines[-1] += _list(changes, most=4)
        if self.skipped:
            lines.append(f"{len(self.skipped)} skipped, as asked:")
            lines[-1] += _list(self.skipped, most=4)
        return "\n".join(lines)


def load_checkpoint(model, source, *, skip=(), resize=True, source_grid=None):
    """Loads a checkpoint, all of it or nothing.

    Every name in the source must have its place in the model, every weight of
    the model must be in the source, and shapes must agree. Nothing is set
    before all of that is known.

    Args:
        model: A backbone or classifier of this package.
        source: Path of a `.safetensors`, `.npz` or `.pth` file (nothing in it
            is executed), or a dictionary of arrays. Its names may be timm's,
            for ResMLP also its authors', or those of
            `export_checkpoint(layout="mlp_mixers")`.
        skip: Names to leave out, theirs or ours; `"head"` means all that
            starts with it, `*` and `?` are wildcards. A weight of the model
            that is skipped keeps its value.
        resize: Whether weights that mix tokens may be carried over to another
            grid of patches, see `resize_spatial_weights`.
        source_grid: `(rows, columns)` of patches in the source. `None` takes
            what `export_checkpoint` wrote into a `.safetensors` file, or else
            the proportions of the model's, or else a square.

    Returns:
        A `LoadReport`.

    Raises:
        ValueError: If the file cannot be read, names do not match, shapes
            differ, or a value is NaN or infinite.

    Example:

    ```python
    report = load_checkpoint(model, "gmlp_s16_224.safetensors")
    load_checkpoint(backbone, "gmlp_s16_224.pth", skip=["head"])
    ```
    """
    skip = _patterns(skip)
    arrays = files.read_arrays(source)
    if source_grid is None:
        source_grid = files.read_grid(source)
    else:
        source_grid = check_grid(source_grid, "source_grid")
    variables = _variables(model)
    layout, table = _choose_layout(model, variables, arrays)
    wanted = {
        name: row
        for name, row in table.items()
        if not _matches(skip, name, row and row[0])
    }
    theirs = {row[0] for row in table.values() if row}
    unused = [name for name in arrays if name not in theirs]
    skipped = [name for name in unused if _matches(skip, name)]
    skipped += [name for name in table if name not in wanted]
    unused = [name for name in unused if name not in skipped]
    missing = [
        name
        for name, row in wanted.items()
        if row is None or row[0] not in arrays
    ]
    _check_names(layout, wanted, missing, unused)

    values, resized, wrong, grids = {}, [], [], None
    grid = getattr(_backbone(model), "grid_shape", None)
    for name, (their_name, form) in wanted.items():
        here = tuple(variables[name].shape)
        value = forms.to_ours(arrays[their_name], form)
        axes = names.token_axes(name)
        if resize and grid and _fits_but_tokens(value.shape, here, axes):
            tokens = value.shape[next(iter(axes.values()))]
            old_grid = _source_grid(source_grid, tokens, grid)
            if old_grid != grid:
                grids = (old_grid, grid)
                resized.append((name, value.shape, here))
                value = _resize(value, *grids, axes)
        if value.shape != here:
            there = arrays[their_name].shape
            wrong.append(f"{name}: {here} here, {there} there")
        elif not _is_finite(value):
            wrong.append(f"{name}: NaN or infinite values")
        values[name] = value
    if wrong:
        raise ValueError(
            "The checkpoint does not fit the model; nothing was loaded. "
            f"Build the model with the checkpoint's sizes.{_list(wrong)}"
        )
    for name, value in values.items():
        variables[name].assign(value.astype("float32"))
    return LoadReport(
        layout, tuple(values), tuple(resized), grids, tuple(skipped)
    )


def export_checkpoint(model, layout="timm", path=None):
    """The weights of a model under the names of another library.

    Args:
        model: A backbone or classifier of this package.
        layout: `"timm"`; `"facebook"` for ResMLP; `"mlp_mixers"` for our own
            names.
        path: A `.safetensors` or `.npz` file to write them to as well.

    Returns:
        Dictionary from name to float32 array, in the order of the model.

    Raises:
        ValueError: If the layout is unknown for this class, or does not have
            what the model has (heads, Toeplitz weights, tiny attention).

    Example:

    ```python
    arrays = export_checkpoint(model, "timm", "digits.safetensors")
    ```
    """
    variables = _variables(model)
    known = {OWN: None, **names.layouts_of(_backbone(model))}
    if layout not in known:
        raise ValueError(
            f"A {type(_backbone(model)).__name__} can be exported to the "
            f"layouts {list(known)}. Received: layout={layout!r}"
        )
    table = _table(variables, known[layout])
    homeless = [name for name, row in table.items() if row is None]
    if homeless:
        raise ValueError(
            f"{layout} has no names for these weights, so a model there could "
            f"not compute the same.{_list(homeless)}"
        )
    arrays = {}
    for name, (their_name, form) in table.items():
        value = keras.ops.convert_to_numpy(
            keras.ops.cast(variables[name], "float32")
        )
        if layout != OWN and name.endswith("spatial_kernel") and value.ndim < 3:
            raise ValueError(
                f"{layout} has no Toeplitz weights. Received: {name} of "
                f"shape {value.shape}"
            )
        arrays[their_name] = forms.to_theirs(value, form, _patch_shape(model))
    if path is not None:
        files.write_arrays(path, arrays, _metadata(model, layout))
    return arrays


def _backbone(model):
    return getattr(model, "backbone", model)


def _variables(model):
    """Every weight of a model by its way through the layers' names."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            "Weights are loaded into a backbone or classifier. "
            f"Received: model={model!r}"
        )
    found = {}

    def walk(layer, path):
        own = layer._trainable_variables + layer._non_trainable_variables
        for variable in own:
            found["/".join((*path, variable.name))] = variable
        for child in layer._layers:
            # A backbone's name is its user's affair; its layers' are ours.
            below = path if child is _backbone(model) else (*path, child.name)
            walk(child, below)

    walk(model, ())
    return found


def _table(variables, rows):
    """Our name -> (their name, form), or `None` where they have none."""
    if rows is None:
        return {name: (name, "same") for name in variables}
    return {name: names.translate(name, rows) for name in variables}


def _choose_layout(model, variables, arrays):
    """The layout that shares most names with the source."""
    known = {OWN: None, **names.layouts_of(_backbone(model))}
    tables = {layout: _table(variables, rows) for layout, rows in known.items()}

    def shared(layout):
        return sum(bool(r) and r[0] in arrays for r in tables[layout].values())

    best = max(tables, key=shared)
    if not shared(best):
        raise ValueError(
            f"No name in the checkpoint belongs to a {type(model).__name__}. "
            f"Known are the names of {list(known)}. Found: "
            f"{list(arrays)[:5]}{' ...' if len(arrays) > 5 else ''}"
        )
    return best, tables[best]


def _patterns(skip):
    if isinstance(skip, str):
        skip = (skip,)
    return tuple(skip)


def _matches(patterns, *candidates):
    return any(
        fnmatch.fnmatchcase(name, pattern)
        or name.startswith((f"{pattern}.", f"{pattern}/"))
        for name in candidates
        if name
        for pattern in patterns
    )


def _check_names(layout, wanted, missing, unused):
    if not missing and not unused:
        return
    parts = [
        f"Names do not match ({layout} layout); nothing was loaded. What is "
        "meant to stay out belongs into `skip`, for instance skip=['head']."
    ]
    if missing:
        expected = [
            f"{name} (there: {wanted[name][0]})"
            if wanted[name]
            else f"{name} (unknown to this layout)"
            for name in missing
        ]
        parts.append(
            f"\nThe model has, and the checkpoint has not:{_list(expected)}"
        )
    if unused:
        parts.append(
            f"\nThe checkpoint has, and the model has not:{_list(unused)}"
        )
    raise ValueError("".join(parts))


def _list(entries, most=8):
    shown = "".join(f"\n  {entry}" for entry in entries[:most])
    rest = len(entries) - most
    return shown + (f"\n  and {rest} more" if rest > 0 else "")


def _fits_but_tokens(there, here, axes):
    """Whether two shapes differ at most in the number of tokens."""
    if not axes or len(there) != len(here):
        return False
    token_axes = {axis % len(here) for axis in axes.values()}
    square = len({there[axis] for axis in token_axes}) == 1
    return square and all(
        a == b
        for axis, (a, b) in enumerate(zip(there, here))
        if axis not in token_axes
    )


def _source_grid(source_grid, tokens, new_grid):
    """The grid of patches that `tokens` were."""
    if source_grid is None and tokens == math.prod(new_grid):
        return tuple(new_grid)
    if source_grid is not None:
        if math.prod(source_grid) != tokens:
            raise ValueError(
                f"The checkpoint has {tokens} tokens. "
                f"Received: source_grid={tuple(source_grid)}"
            )
        return tuple(source_grid)
    rows, columns = new_grid
    scale = math.sqrt(tokens / (rows * columns))
    guesses = [
        (round(rows * scale), round(columns * scale)),
        (math.isqrt(tokens), math.isqrt(tokens)),
    ]
    for guess in guesses:
        if math.prod(guess) == tokens:
            return guess
    raise ValueError(
        f"The checkpoint has {tokens} tokens, which are neither a square of "
        f"patches nor have the proportions of this model's {new_grid}: pass "
        "`source_grid=(rows, columns)`."
    )


def _resize(value, old_grid, new_grid, axes):
    chosen = {"output_axis": None, "input_axis": None, **axes}
    return resize_spatial_weights(value, old_grid, new_grid, **chosen)


def _is_finite(value):
    return bool(np.isfinite(value.astype("float32")).all())


def _patch_shape(model):
    backbone = _backbone(model)
    return (*backbone.patch_size, backbone.image_shape[-1])


def _metadata(model, layout):
    """What a `.safetensors` file says of itself."""
    backbone = _backbone(model)
    return {
        "layout": layout,
        "class": type(model).__name__,
        "grid": "x".join(map(str, backbone.grid_shape)),
        "source": os.fspath(model.name),
    }
