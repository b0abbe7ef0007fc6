"""The settings of a run, from its `config.json` back to a configuration."""

import dataclasses
import pathlib
import types
import typing

# Types of settings, as a reader of JSON knows them.
WORDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    pathlib.Path: "a path",
    types.NoneType: "null",
}


def from_record(config_class, record):
    """The configuration that a run's `config.json` was written from.

    Groups of settings and those that are never `None` must be there; what has
    come later is left as it is by default.

    Args:
        config_class: A dataclass of settings, and of dataclasses of settings.
        record: Dictionary. What is no setting is passed over, outside of
            groups.

    Raises:
        ValueError: If it was written by another version of the recipe, or a
            value has another type than its setting.
    """
    hints = typing.get_type_hints(config_class)
    found = {}
    try:
        for field in dataclasses.fields(config_class):
            name = field.name
            if name in record:
                found[name] = _setting(name, record[name], hints[name])
            elif field.default is not None:
                raise TypeError(f"there is no {name!r}")
    except TypeError as error:
        raise ValueError(
            "The run's config.json is not of this version of the recipe, or "
            f"was changed: {error}"
        ) from error
    return config_class(**found)


def _setting(name, value, hint):
    """A setting, or a group of them, from what stands for it in JSON."""
    if dataclasses.is_dataclass(hint):
        return _group(name, value, hint)
    found = _as_typed(value, hint)
    if not _is_of(found, hint):
        raise TypeError(
            f"`{name}` must be {in_words(hint)}. Received: {name}={value!r}"
        )
    return found


def _group(name, values, kind):
    if not isinstance(values, dict):
        raise TypeError(
            f"`{name}` must be a group of settings. Received: {name}={values!r}"
        )
    hints = typing.get_type_hints(kind)
    for unknown in values.keys() - hints.keys():
        raise TypeError(f"there is no setting {unknown!r} in {name!r}")
    return kind(**{k: _setting(k, v, hints[k]) for k, v in values.items()})


def _as_typed(value, hint):
    """JSON has no tuples and no paths."""
    if isinstance(value, list):
        return tuple(value)
    kinds = (hint, *typing.get_args(hint))
    if isinstance(value, str) and pathlib.Path in kinds:
        return pathlib.Path(value)
    return value


def _is_of(value, hint):
    """Whether a value is of a type, as far as settings have types."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in inside
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, one) for one in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = inside[:1] * len(value) if ... in inside else inside
        return len(value) == len(wanted) and all(map(_is_of, value, wanted))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def in_words(hint):
    """A type of settings: `a list, each a text, or null`."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, inside))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(in_words, inside))
    if origin is tuple:
        count = "" if ... in inside else f" of {len(inside)}"
        return f"a list{count}, each {in_words(inside[0])},"
    return WORDS[hint]
