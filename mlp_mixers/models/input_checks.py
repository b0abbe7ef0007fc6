"""Labels, token ids and weights that users hand to a task, looked at first.

What is out of range stops PyTorch and TensorFlow within a step, with a message
about neither, and JAX not at all: there it trains, and measures, in silence.
Only arrays can be looked at; data sets make theirs later.
"""

import contextlib
import inspect

import keras
import numpy as np


def by_name(method, args, kwargs, known):
    """What a method of `keras.Model` gets beside its first arguments.

    Args:
        method: A function.
        args: Positional arguments after the first ones.
        kwargs: Arguments by name.
        known: Number of the first ones, `self` included.

    Returns:
        Dictionary of all of them by name.

    Raises:
        TypeError: As the method does for arguments that it does not take.
    """
    first = [None] * known
    bound = inspect.signature(method).bind(*first, *args, **kwargs)
    named = dict(list(bound.arguments.items())[known:])
    return {**named.pop("kwargs", {}), **named}


@contextlib.contextmanager
def values_kept(variables):
    """Gives variables their values back that a failed call has taken.

    On JAX, Keras takes the arrays out of a model before its first step, and
    leaves it without any if that step cannot be traced.
    """
    values = [variable._value for variable in variables]
    try:
        yield
    except Exception:
        for variable, value in zip(variables, values):
            if variable._value is None:
                variable._value = value
        raise


def are_arrays(x):
    """Whether these are arrays, and no data set with labels of its own."""
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(hasattr(leaf, "shape") for leaf in leaves)


def as_array(values, name):
    """Lists as arrays, which is all that Keras takes; the rest as it is.

    Raises:
        ValueError: If the lists in a list differ in length.
    """
    if not isinstance(values, (list, tuple)):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"The rows of `{name}` must be of one length: {error}. "
            f"Received: {name}={shortened(values)}"
        ) from error


def to_numpy(array):
    """A NumPy array of an array of whatever kind."""
    if keras.ops.is_tensor(array):
        return keras.ops.convert_to_numpy(array)
    return np.asarray(array)


def check_labels(labels, output_shape, num_classes=None, ignored=None):
    """Raises a ValueError for what are no labels of a task.

    Args:
        labels: Array.
        output_shape: Of the task, `None` where it is open.
        num_classes: Labels are 0 to `num_classes - 1`; `None` if they are
            numbers of another kind, for losses that take those.
        ignored: A label that the loss leaves out, or `None`.
    """
    labels = to_numpy(labels)
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            "Labels must be numbers. Number the names of classes: "
            "`names = sorted(set(labels))` and "
            "`y = [names.index(label) for label in labels]`. "
            f"Received: {_first(labels)!r} among the labels"
        )
    if num_classes is None:
        _check_finite(labels)
        return
    expected = tuple(output_shape[:-1])
    if not _is_like(labels.shape, expected):
        hint = ""
        if labels.shape[-1:] == (num_classes,):
            hint = " Are they one-hot? Pass `y.argmax(-1)`."
        raise ValueError(
            "There must be one label for each output, the number of a class: "
            f"shape {expected}, `None` being as many as there are examples."
            f"{hint} Received: labels of shape {labels.shape}"
        )
    check_range(labels, num_classes, "Labels", "label", ignored)


def check_range(array, count, title, name, ignored=None):
    """Raises a ValueError unless all numbers are whole and 0 to `count - 1`.

    Args:
        array: NumPy array of numbers.
        count: How many numbers there are.
        title: What the array is, for the beginning of the message.
        name: What one of its entries is.
        ignored: One more number that is fine, or `None`.
    """
    if not array.size:
        return
    # What is as it should be takes two passes and no memory.
    whole = array.dtype.kind in "biu"
    if whole and array.min() >= 0 and array.max() < count:
        return
    fine = (array >= 0) & (array < count)  # NaN is neither
    if not whole:
        fine &= array == np.floor(array)
    if ignored is not None:
        fine |= array == ignored
    if fine.all():
        return
    place = tuple(int(i) for i in np.argwhere(~fine)[0])
    hint = ""
    if array.min() == 1 and array.max() == count:
        hint = " These seem to be counted from 1: subtract 1."
    raise ValueError(
        f"{title} must be whole numbers from 0 to {count - 1}.{hint} "
        f"Received: {name} {array[place].item()!r} at index {_index(place)}"
    )


def check_finite(logits):
    """Returns what a model says.

    Raises:
        ValueError: If there is a NaN or an infinite number in it.
    """
    if not np.isfinite(logits).all():
        raise ValueError(
            "The model's weights are not finite: its training has diverged. "
            "Train again with a lower learning rate or a longer warm-up. "
            "Received: outputs with NaN or infinite numbers"
        )
    return logits


def shortened(value, length=60):
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."


def _is_like(shape, expected):
    """Whether a shape is the expected one, perhaps with an axis of 1 more."""
    if len(shape) == len(expected) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    return len(shape) == len(expected) and all(
        b is None or a == b for a, b in zip(shape, expected)
    )


def _check_finite(labels):
    if not np.isfinite(labels).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(labels))[0])
        raise ValueError(
            "Labels must be finite numbers. Leave out examples without. "
            f"Received: label {labels[place].item()!r} at index "
            f"{_index(place)}"
        )


def _index(place):
    return ", ".join(map(str, place))


def _first(labels):
    """The first entry that is no number."""
    for label in labels.flat:
        if not isinstance(label, (int, float, np.number)):
            return str(label) if isinstance(label, np.str_) else label
    return labels.flat[0] if labels.size else labels
