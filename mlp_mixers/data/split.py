"""Training, validation and test images, and how one set becomes three."""

import dataclasses
import numbers

import numpy as np

PARTS = ("train", "validation", "test")
WAYS = ("stratified", "rows")


@dataclasses.dataclass(frozen=True)
class Split:
    """Images and labels for training, validation and test.

    Each of the three is `(images, labels)`. `images` is any sequence where
    `len(images)` is the number of samples and `images[i]` is one image,
    `(height, width, channels)`, as uint8 or as float32 in [0, 1]; sizes may
    differ from image to image. An array `(samples, height, width, channels)`
    is one such sequence. `labels` is an int32 array `(samples,)`.

    `class_names[k]` is the name of label k. `notes` are sentences about what
    was left out or cut on the way, for whoever prints them.
    """

    train: tuple
    validation: tuple
    test: tuple
    class_names: tuple
    notes: tuple = ()


def complete_split(
    parts,
    class_names,
    seed=0,
    validation_fraction=0.1,
    test_fraction=0.1,
    way="stratified",
    notes=(),
):
    """Makes a `Split` of what there is; cuts what is missing from `train`.

    Args:
        parts: Dictionary with `train`, and `validation` and `test` or not,
            to `(images, labels)`.
        class_names: Names in the order of the labels.
        seed: Integer; the cut is a function of it and of the labels.
        validation_fraction: Part of the training images that serves for
            validation, if `parts` has no `validation`.
        test_fraction: The same for `test`.
        way: `"stratified"`: every class in proportion, drawn by `seed`.
            `"rows"`: the last images in the order in which they are; of
            what is cut, validation comes before test.
        notes: Sentences to begin the split's notes with.

    Returns:
        A `Split`.

    Raises:
        ValueError: If a fraction is out of range, or there are too few images
            of a class to give every part one.
    """
    check_cut(seed, validation_fraction, test_fraction, way)
    images, labels = parts["train"]
    fractions = {"validation": validation_fraction, "test": test_fraction}
    wanted = {k: v for k, v in fractions.items() if k not in parts}
    if not wanted:
        whole = {name: parts[name] for name in PARTS}
    else:
        if way == "rows":
            chosen = cut_rows(len(labels), wanted)
        else:
            chosen = cut_stratified(labels, wanted, seed, class_names)
        whole = {
            name: (select(images, rows), labels[rows])
            for name, rows in chosen.items()
        }
        whole.update({k: v for k, v in parts.items() if k != "train"})
        if len(wanted) == 1:
            (name,) = wanted
            notes = (
                *notes,
                f"there is no {name} part: {len(chosen[name]):,} of the "
                f"{len(labels):,} training images serve as one",
            )
    return Split(
        **{name: whole[name] for name in PARTS},
        class_names=tuple(class_names),
        notes=tuple(notes),
    )


def check_cut(seed, validation_fraction, test_fraction, way="stratified"):
    """Raises a ValueError for arguments that cut nothing sensible.

    For readers to call before they read for a long time.
    """
    fractions = (validation_fraction, test_fraction)
    fine = all(
        isinstance(f, numbers.Real) and 0 < f < 1 for f in fractions
    ) and (sum(fractions) < 1)
    if not fine:
        raise ValueError(
            "The fractions for validation and test must be above 0 and leave "
            "something to train with. Received: validation_fraction="
            f"{validation_fraction!r}, test_fraction={test_fraction!r}"
        )
    if (
        not isinstance(seed, numbers.Integral)
        or isinstance(seed, bool)
        or seed < 0
    ):
        raise ValueError(
            "`seed` must be an integer and not negative. "
            f"Received: seed={seed!r}"
        )
    if way not in WAYS:
        raise ValueError(
            f"Images are cut into parts by one of {WAYS}. Received: {way!r}"
        )


def cut_rows(samples, fractions):
    """The last rows, as they come, for the parts in `fractions`.

    Args:
        samples: Number of rows.
        fractions: Dictionary from name to fraction, in order.

    Returns:
        Dictionary of index arrays: `train`, then the names of `fractions`.
    """
    sizes = {name: round(samples * part) for name, part in fractions.items()}
    sizes = {"train": samples - sum(sizes.values()), **sizes}
    if min(sizes.values()) < 1:
        raise ValueError(
            "There are too few images for every part to have one. "
            f"Received: {samples} images for {', '.join(sizes)}"
        )
    ends = np.cumsum(list(sizes.values()))
    return {
        name: np.arange(end - size, end)
        for (name, size), end in zip(sizes.items(), ends)
    }


def cut_stratified(labels, fractions, seed, class_names=None):
    """Draws the parts in `fractions` from every class in proportion.

    Of a class with c images, a part gets round(fraction·c) and at least one.
    The draw depends on the seed, the labels and NumPy's generator alone, so
    it stays the same when other libraries change. Every part comes out
    shuffled, since sources often lie sorted by class.

    Args:
        labels: Integer array `(samples,)`.
        fractions: Dictionary from name to fraction.
        seed: Integer.
        class_names: For the message.

    Returns:
        Dictionary of index arrays: `train`, then the names of `fractions`.

    Raises:
        ValueError: If a class has too few images to give every part one.
    """
    rng = np.random.default_rng(seed)
    parts = {name: [] for name in ("train", *fractions)}
    too_few = {}
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        start = 0
        for name, fraction in fractions.items():
            size = max(1, round(len(rows) * fraction))
            parts[name].append(rows[start : start + size])
            start += size
        parts["train"].append(rows[start:])
        if start >= len(rows):
            too_few[label] = len(rows)
    if too_few:
        names = [str(class_names[k] if class_names else k) for k in too_few]
        counts = (f"{n} ({c})" for n, c in zip(names, too_few.values()))
        raise ValueError(
            f"Every class needs images for {', '.join(parts)}: at least "
            f"{len(parts)}, more if the fractions are large. Add images, or "
            "remove the class. Received: classes with too few images: "
            f"{shorten(list(counts))}"
        )
    return {
        name: rng.permutation(np.concatenate(rows))
        for name, rows in parts.items()
    }


def select(images, rows):
    """The images at the indices `rows`; of a lazy sequence, lazily."""
    if isinstance(images, np.ndarray):
        return images[rows]
    return images.take(rows)


def shorten(names, shown=5):
    """A list for a sentence: the first few, and how many more there are."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" * (more > 0))
