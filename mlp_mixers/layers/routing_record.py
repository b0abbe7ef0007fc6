"""How busy experts are: sums that a layer keeps over a training epoch."""

import math

import numpy as np
from keras import ops


class RoutingRecord:
    """Means over training steps of how a layer has routed.

    - `load_entropy`: entropy of the load over the entropy of equal shares,
      1 if all experts are equally busy, 0 if one of several does everything.
      Of a single expert it is 0 / 0, and taken to be 1: its load is even;
    - `max_load`: load of the busiest expert over a fair share;
    - `drop_rate`: share of the choices that found no place;
    - the router's losses, before their weights.

    The sums are a weight of the layer that is not trained, as the moving
    means of a batch normalisation are, and not metrics: on JAX, `fit` knows
    no metrics of layers. `mlp_mixers.training.RoutingMetrics` shows them.

    Args:
        layer: The layer, in its `build`.
        losses: Names of the losses.
    """

    def __init__(self, layer, losses=()):
        self.losses = tuple(losses)
        self.names = ("load_entropy", "max_load", "drop_rate", *self.losses)
        self.sums = layer.add_weight(
            name="routing_record",
            shape=(len(self.names) + 1,),
            initializer="zeros",
            dtype="float32",
            trainable=False,
            autocast=False,
        )

    def add(self, counts, kept, losses):
        """Adds a training step.

        Args:
            counts: `(E,)` integers: choices that fell on each expert.
            kept: Scalar integer: how many of them found a place.
            losses: Dictionary of scalars.
        """
        counts = ops.cast(counts, "float32")
        asked = ops.sum(counts)
        total = ops.maximum(asked, 1.0)  # a step may be all padding
        share = counts / total
        experts = share.shape[0]
        entropy = -ops.sum(share * ops.log(ops.maximum(share, 1e-9)))
        if experts > 1:
            evenness = entropy / math.log(experts)
        else:
            evenness = ops.ones_like(entropy)
        values = [
            evenness,
            ops.max(share) * experts,
            (asked - ops.cast(kept, "float32")) / total,
            *(ops.cast(losses[name], "float32") for name in self.losses),
            ops.ones(()),
        ]
        self.sums.assign_add(ops.stop_gradient(ops.stack(values)))

    def means(self):
        """Dictionary of floats by name; empty before the first step."""
        *sums, steps = ops.convert_to_numpy(self.sums).tolist()
        if not steps:
            return {}
        return {name: s / steps for name, s in zip(self.names, sums)}

    def reset(self):
        """Forgets all steps."""
        self.sums.assign(np.zeros(self.sums.shape, "float32"))
