"""Shows how busy experts are, epoch by epoch."""

import keras


class RoutingMetrics(keras.callbacks.Callback):
    """Adds to an epoch's logs how layers with experts have routed.

    For each such layer, under its name: `load_entropy`, `max_load`,
    `drop_rate` and the router's losses, means over the training steps of the
    epoch; see `mlp_mixers.layers.routing_record`. `SMLPCausalLM.fit` uses it
    by itself. Give it before callbacks that keep logs.

    Example:

    ```python
    model.fit(x, y, callbacks=[RoutingMetrics()])
    ```
    """

    def on_epoch_begin(self, epoch, logs=None):
        for _, record in routing_records(self.model):
            record.reset()

    def on_epoch_end(self, epoch, logs=None):
        for layer, record in routing_records(self.model):
            for name, value in record.means().items():
                logs[f"{layer.name}_{name}"] = value


def routing_records(model):
    """`[(layer, its routing record)]` of all layers that keep one."""
    return [
        (layer, layer.routing_record)
        for layer in model._flatten_layers()
        if hasattr(layer, "routing_record")
    ]
