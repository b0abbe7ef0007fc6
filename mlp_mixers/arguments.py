"""Checks of arguments that many classes share, with one wording."""

import math
import numbers


def positive_integer(value, name, optional=False):
    """Returns `value` as an `int`.

    Args:
        value: What the caller got.
        name: Name of the argument, for the message.
        optional: Whether `None` is allowed too.

    Raises:
        ValueError: If `value` is anything but an integer above zero.
    """
    if value is None and optional:
        return None
    if not _is_positive_integer(value):
        raise ValueError(
            f"`{name}` must be a positive integer"
            f"{' or `None`' if optional else ''}. "
            f"Received: {name}={value!r}"
        )
    return int(value)


def natural_number(value, name):
    """Returns `value` as an `int`.

    Raises:
        ValueError: If `value` is anything but an integer, zero or above.
    """
    if (
        not isinstance(value, numbers.Integral)
        or isinstance(value, bool)
        or value < 0
    ):
        raise ValueError(
            f"`{name}` must be an integer and not negative. "
            f"Received: {name}={value!r}"
        )
    return int(value)


def pair(value, name):
    """Returns `(height, width)` from one integer or a pair of them.

    Args:
        value: What the caller got.
        name: Name of the argument, for the message.

    Raises:
        ValueError: If `value` is neither.
    """
    values = value
    if not isinstance(value, (tuple, list)):
        values = (value, value)
    if len(values) != 2 or not all(map(_is_positive_integer, values)):
        raise ValueError(
            f"`{name}` must be a positive integer or a pair of them, "
            f"(height, width). Received: {name}={value!r}"
        )
    return tuple(int(v) for v in values)


def positive_number(value, name):
    """Returns `value` as a `float`.

    Raises:
        ValueError: If `value` is anything but a finite number above zero.
    """
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(
            f"`{name}` must be a positive number. Received: {name}={value!r}"
        )
    return float(value)


def not_negative(value, name):
    """Returns `value` as a `float`.

    Raises:
        ValueError: If `value` is anything but a number of zero or more.
    """
    if not _is_number(value) or not value >= 0:
        raise ValueError(
            f"`{name}` must be a number that is not negative. "
            f"Received: {name}={value!r}"
        )
    return float(value)


def drop_rate(value, name):
    """Returns the probability `value` as a `float`.

    Raises:
        ValueError: If `value` is anything but a number in [0, 1).
    """
    if not _is_number(value) or not 0 <= value < 1:
        raise ValueError(
            f"`{name}` is a probability of dropping and must lie in [0, 1). "
            f"Received: {name}={value!r}"
        )
    return float(value)


def boolean(value, name):
    """Returns `value` as a `bool`.

    Raises:
        ValueError: If `value` is anything but true or false. `"no"` is not.
    """
    if value not in (True, False):
        raise ValueError(
            f"`{name}` must be `True` or `False`. Received: {name}={value!r}"
        )
    return bool(value)


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_positive_integer(value):
    # `True` is an integer to Python, and a slip to everyone else.
    return (
        isinstance(value, numbers.Integral)
        and not isinstance(value, bool)
        and value > 0
    )
