"""How stochastic depth is spread over the blocks of a model."""


def drop_path_rates(last_rate, num_layers, schedule="constant"):
    """The rate of stochastic depth for each block.

    Args:
        last_rate: That of the last block.
        num_layers: Number of blocks.
        schedule: `"constant"`, or `"linear"` from 0.

    Returns:
        List of `num_layers` floats.

    Raises:
        ValueError: If `schedule` is another word.
    """
    if schedule == "constant":
        return [last_rate] * num_layers
    if schedule == "linear":
        last = num_layers - 1
        return [last_rate * i / last for i in range(last)] + [last_rate]
    raise ValueError(
        "`drop_path_schedule` must be 'constant' or 'linear'. "
        f"Received: drop_path_schedule={schedule!r}"
    )
