"""Parameters and floating-point operations of a model, layer by layer."""

import dataclasses
import numbers

import keras

from mlp_mixers.analysis import flop_formulas_own  # noqa: F401 - registers
from mlp_mixers.analysis import flop_formulas_sparse  # noqa: F401
from mlp_mixers.analysis.flop_cost import Cost
from mlp_mixers.analysis.flop_cost import formula_of
from mlp_mixers.analysis.flop_formulas_keras import operation_cost
from mlp_mixers.data.masking import masked_per_row


@dataclasses.dataclass(frozen=True)
class FlopsRow:
    """What one call of a layer costs, its children included.

    Attributes:
        name: Names from the top of the model to the layer, with slashes.
        layer_class: Name of the class.
        output_shape: Without the batch.
        parameters: Those that no earlier row has counted: a layer that is
            called twice has its parameters once.
        active_parameters: How many of them one example uses.
        macs: Multiply-adds of the products.
        flops: `2 * macs`, and one for each other operation.
        depth: 0 for a layer of the model, 1 for a child of one, and so on.
            A model inside a model adds no depth and has no row.
    """

    name: str
    layer_class: str
    output_shape: tuple
    parameters: int
    active_parameters: int
    macs: int
    flops: int
    depth: int


@dataclasses.dataclass(frozen=True)
class FlopsReport:
    """What a model costs for one example.

    `str(report)` is a table with a row for each layer of the model, and
    `report.table(depth)` one that shows children too.

    Attributes:
        model_name: Name of the model.
        rows: `FlopsRow`s of all depths, each layer before its children.
    """

    model_name: str
    rows: tuple

    @property
    def flops(self):
        """Floating-point operations: `2 * macs`, and the element-wise ones."""
        return self._total("flops")

    @property
    def macs(self):
        """Multiply-adds of the matrix products."""
        return self._total("macs")

    @property
    def parameters(self):
        """All parameters."""
        return self._total("parameters")

    @property
    def active_parameters(self):
        """The parameters that one example uses."""
        return self._total("active_parameters")

    def rows_to(self, depth=0):
        """The rows down to a depth; 0 shows every block as one row."""
        return [row for row in self.rows if row.depth <= depth]

    def table(self, depth=0):
        """The report as text.

        Args:
            depth: How deep the rows go. A row includes its children, so only
                those of depth 0 add up to the total.

        Returns:
            String of lines, the total last.
        """
        titles = ("layer", "class", "output")
        numbers = ("parameters", "active", "MACs", "FLOPs")
        lines = [(*titles, *numbers)]
        for row in self.rows_to(depth):
            shape = "×".join(map(str, row.output_shape))
            name = "  " * row.depth + row.name
            lines.append((name, row.layer_class, shape, *_numbers(row)))
        lines.append((self.model_name, "total", "", *_numbers(self)))
        return _aligned(lines, left=len(titles))

    def __str__(self):
        return self.table()

    def _total(self, attribute):
        return sum(getattr(row, attribute) for row in self.rows_to(0))


def count_flops(model, input_shape=None):
    """Counts parameters and operations of a model in inference, analytically.

    Nothing is run. Every layer has a formula: matrix products count by their
    multiply-adds, two operations each; then come the element-wise operations,
    1 for a bias, a sum or a gate, 5 for an element of a normalisation or a
    softmax, 4 for a GELU. So counted, the models of *Pay Attention to MLPs*
    have the FLOPs of its Table 1. W of a gating unit is multiplied as the
    dense matrix that it is, also if Toeplitz values or a triangle make it.

    Args:
        model: A Functional or Sequential model, at whatever depth others are
            inside it, or one layer; built.
        input_shape: Shape of one example, without the batch; a list or
            dictionary of them for several inputs. `None` takes the model's,
            which must be known then: images have one size, and text models
            are counted for the longest text they read, masked language
            models with the masks of 15% of its tokens.

    Returns:
        A `FlopsReport`.

    Raises:
        ValueError: If the model is not built; if a size is unknown or does
            not fit; if a layer has no formula: `register_flops` gives it one.

    Example:

    ```python
    report = count_flops(model)
    print(report)  # blocks as rows
    print(report.table(depth=1))  # and what is in them
    report.flops / 1e9, report.macs / 1e9, report.active_parameters
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Table 1 for
        operations, Table 2 for multiply-adds.
    """
    if not getattr(model, "built", False):
        raise ValueError(
            "The model must be built to be counted: call it once, or build "
            f"it. Received: model={model!r}"
        )
    counter = _Counter()
    graph = _graph_of(model)
    if graph is None:
        if input_shape is None:
            raise ValueError(
                "A layer can be called with inputs of many sizes: pass "
                "`input_shape`, without the batch. "
                f"Received: model={model!r}, input_shape=None"
            )
        counter.count(model, (_checked(input_shape),), {}, (), 0)
    else:
        if input_shape is None:
            input_shape = _of_longest_text(model)
        counter.count_graph(graph, _inputs(graph, input_shape), ())
    return FlopsReport(model.name, tuple(counter.rows))


class _Counter:
    """Collects rows, and remembers whose parameters they have."""

    def __init__(self):
        self.rows = []
        self.counted = set()  # ids of variables

    def count_graph(self, graph, inputs, path):
        """Counts every operation of a Functional model; returns outputs."""

        def record(operation):
            def call(*args, **kwargs):
                inner = _graph_of(operation)
                if inner is not None:
                    inner_path = (*path, operation.name)
                    tensors = args[0] if args else kwargs["inputs"]
                    return self.count_graph(inner, tensors, inner_path)
                outputs = _outputs(operation, args, kwargs)
                self.count_operation(operation, args, kwargs, outputs, path)
                return outputs

            return call

        return graph._run_through_graph(inputs, operation_fn=record)

    def count_operation(self, operation, args, kwargs, outputs, path):
        """Adds the row of a node of the graph, from its tensors."""
        if isinstance(operation, keras.Layer) and formula_of(operation):
            shapes = [_shapes(arg) for arg in args]
            named = {k: _shapes(arg) for k, arg in kwargs.items()}
            named = {k: shape for k, shape in named.items() if shape}
            self.count(operation, shapes, named, path, 0, _shapes(outputs))
            return
        cost = None
        if not getattr(operation, "weights", ()):
            if not _has_floats(outputs):  # masks, indices: no float is touched
                cost = Cost()
            elif not isinstance(operation, keras.Layer):
                cost = operation_cost(operation, _shapes(outputs))
        if cost is None:
            raise _no_formula(operation, path)
        self.add(operation, cost, path, 0, _shapes(outputs))

    def count(self, layer, shapes, named, path, depth, output_shape=None):
        """Adds the row of a layer, and those of its parts below it."""
        formula = formula_of(layer)
        if formula is None:
            raise _no_formula(layer, path)
        cost = formula(layer, *shapes, **named)
        if output_shape is None:
            output_shape = _output_shape(layer, shapes, named)
        return self.add(layer, cost, path, depth, output_shape)

    def add(self, layer, cost, path, depth, output_shape):
        path = (*path, layer.name)
        place = len(self.rows)
        self.rows.append(None)  # its children come below it
        own = self._own_parameters(layer, cost, path)
        parts = [
            self.count(p.layer, p.shapes, p.named_shapes, path, depth + 1)
            for p in cost.parts
        ]
        parameters = own + sum(part.parameters for part in parts)
        active = cost.active_parameters
        if active is None:
            active = own + sum(part.active_parameters for part in parts)
        macs = cost.macs + sum(part.macs for part in parts)
        row = FlopsRow(
            name="/".join(path),
            layer_class=type(layer).__name__,
            output_shape=output_shape,
            parameters=parameters,
            # A second call of a layer brings none, active or not.
            active_parameters=min(active, parameters),
            macs=macs,
            flops=2 * cost.macs
            + cost.elementwise
            + sum(part.flops for part in parts),
            depth=depth,
        )
        self.rows[place] = row
        return row

    def _own_parameters(self, layer, cost, path):
        """Counts the weights that are in no part, each once."""
        of_parts = {id(w) for part in cost.parts for w in part.layer.weights}
        own = [
            w for w in getattr(layer, "weights", ()) if id(w) not in of_parts
        ]
        if not cost.whole:
            for child in getattr(layer, "_layers", ()):
                if any(id(w) not in of_parts for w in child.weights):
                    raise ValueError(
                        f"The formula of {type(layer).__name__} leaves out "
                        f"its child {child.name!r}. Register one for the "
                        "class whose `Cost` has it among its `parts`, or says "
                        f"`whole=True`. Received: layer={'/'.join(path)}"
                    )
        new = [w for w in own if id(w) not in self.counted]
        self.counted.update(id(w) for w in new)
        return sum(_elements(w) for w in new)


def _graph_of(model):
    """The Functional graph of a model, `None` if it has none."""
    if isinstance(model, keras.Sequential):
        model = model._functional
    return model if hasattr(model, "_run_through_graph") else None


def _of_longest_text(model):
    """The shapes of a text model's inputs; `None` of any other's."""
    length = getattr(getattr(model, "backbone", model), "sequence_length", None)
    sizes = {"token_ids": length, "padding_mask": length}
    if length:
        sizes["mask_positions"] = masked_per_row(length)
    names = [tensor.name for tensor in model.inputs]
    if not length or not set(names) <= set(sizes):
        return None
    return {name: (sizes[name],) for name in names}


def _inputs(graph, input_shape):
    """Symbolic inputs of one example, in the order of the model's."""
    given = _shapes_by_input(graph, input_shape)
    tensors = []
    for tensor, shape in zip(graph.inputs, given):
        own = tuple(tensor.shape[1:])
        shape = own if shape is None else _checked(shape)
        fits = len(shape) == len(own) and all(
            a is None or a == b for a, b in zip(own, shape)
        )
        if not fits:
            raise ValueError(
                f"`input_shape` does not fit the input {tensor.name!r} of "
                f"shape {own}. Received: input_shape={input_shape!r}"
            )
        if None in shape:
            raise ValueError(
                f"The input {tensor.name!r} has sizes that are not known: "
                "pass `input_shape`, without the batch. "
                f"Received: input_shape={input_shape!r}, shape {own}"
            )
        tensors.append(
            keras.KerasTensor((1, *shape), tensor.dtype, name=tensor.name)
        )
    return tensors


def _shapes_by_input(graph, input_shape):
    """Lists what `input_shape` says for each input, `None` if it is silent."""
    names = [tensor.name for tensor in graph.inputs]
    if input_shape is None:
        return [None] * len(names)
    if isinstance(input_shape, dict) and set(input_shape) == set(names):
        return [input_shape[name] for name in names]
    if isinstance(input_shape, (list, tuple)):
        several = input_shape and isinstance(input_shape[0], (list, tuple))
        shapes = input_shape if several else [input_shape]
        if len(shapes) == len(names):
            return list(shapes)
    raise ValueError(
        f"`input_shape` must have a shape for each of the inputs {names}: a "
        "list in this order, or a dictionary by these names. "
        f"Received: input_shape={input_shape!r}"
    )


def _checked(shape):
    """A shape as a tuple of positive integers."""
    if not isinstance(shape, (list, tuple)) or not all(
        isinstance(s, numbers.Integral) and s > 0 for s in shape
    ):
        raise ValueError(
            "`input_shape` must be the shape of one example, a tuple of "
            f"positive integers. Received: input_shape={shape!r}"
        )
    return tuple(int(s) for s in shape)


def _shapes(argument):
    """The shapes, without batch, of what a layer is called with."""
    if isinstance(argument, (list, tuple)):
        return [_shapes(a) for a in argument]
    if isinstance(argument, dict):
        return {k: _shapes(a) for k, a in argument.items()}
    shape = getattr(argument, "shape", None)
    return None if shape is None else tuple(shape[1:])


def _output_shape(layer, shapes, named):
    def tensor(shape):
        if isinstance(shape, list):
            return [tensor(s) for s in shape]
        return keras.KerasTensor((1, *shape), layer.compute_dtype)

    args = [tensor(shape) for shape in shapes]
    kwargs = {name: tensor(shape) for name, shape in named.items()}
    return _shapes(_outputs(layer, args, kwargs))


def _outputs(operation, args, kwargs):
    """Symbolic outputs, with every size known if those of the inputs are."""
    outputs = operation.compute_output_spec(*args, **kwargs)
    if any(None in tensor.shape for tensor in keras.tree.flatten(outputs)):
        # What `compute_output_shape` leaves open, a traced call decides.
        trace = keras.Operation.compute_output_spec
        outputs = trace(operation, *args, **kwargs)
    return outputs


def _has_floats(outputs):
    return any(
        keras.backend.is_float_dtype(t.dtype)
        for t in keras.tree.flatten(outputs)
    )


def _elements(variable):
    total = 1
    for length in variable.shape:
        total *= length
    return total


def _no_formula(layer, path):
    name = type(layer).__name__
    return ValueError(
        f"There is no formula for the layer class {name}. Register one: "
        f"decorate a function of the layer and its input shape, "
        f"`cost(layer, x)`, with `@register_flops({name})` and return its "
        f"`Cost`. Received: layer={'/'.join((*path, layer.name))}"
    )


def _numbers(row):
    return (
        f"{row.parameters:,}",
        f"{row.active_parameters:,}",
        f"{row.macs:,}",
        f"{row.flops:,}",
    )


def _aligned(lines, left):
    """Columns with two blanks between, the first `left` of them to the left."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])
