"""What a layer costs, and where its formula is kept."""

import dataclasses
import functools


class Part:
    """A child of a layer, and the shapes it is called with.

    Args:
        layer: The child.
        *shapes: Shapes of its positional inputs, without the batch.
        **named_shapes: Those of its inputs by name; `None` leaves one out.
    """

    def __init__(self, layer, *shapes, **named_shapes):
        self.layer = layer
        self.shapes = shapes
        self.named_shapes = {
            name: shape
            for name, shape in named_shapes.items()
            if shape is not None
        }


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a layer costs for one example.

    Args:
        macs: Multiply-adds of its products, without those of its parts.
        elementwise: Its other floating-point operations, likewise.
        parts: `Part`s, one for each call of a child.
        whole: Whether the numbers speak for children too. Otherwise children
            with weights must all be among the parts.
        active_parameters: How many parameters one example uses, those of the
            parts included. `None` means all of the layer's own, and of each
            part what it says itself.
    """

    macs: int = 0
    elementwise: int = 0
    parts: tuple = ()
    whole: bool = False
    active_parameters: int | None = None


def register_flops(layer_class):
    """Registers the formula of a layer class, and of those that derive.

    The formula is a function of the layer and of the shapes it is called
    with, as its `call` takes them: by position or by name, a list where
    `call` takes a list. The shapes leave out the batch. It returns a `Cost`.

    Args:
        layer_class: The class.

    Returns:
        A decorator that returns the function unchanged.

    Example:

    ```python
    @register_flops(MyGate)
    def gate_cost(layer, x):
        n, channels = x
        return Cost(elementwise=n * channels, parts=[Part(layer.dense, x)])
    ```
    """
    return _formula.register(layer_class)


def formula_of(layer):
    """The function that was registered for a layer's class, or `None`."""
    formula = _formula.dispatch(type(layer))
    return None if formula is _formula.dispatch(object) else formula


@functools.singledispatch
def _formula(layer, *shapes, **named_shapes):
    raise NotImplementedError  # stands for "no formula"; never called
