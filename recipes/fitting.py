"""How every recipe trains: a bar, a checkpoint an epoch, ways out in words."""

import keras

from mlp_mixers import data
from mlp_mixers.training import AdamW
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import WarmupLinear
from recipes.command import room_for


def fit(
    model,
    batches,
    validation,
    epochs,
    checkpoint,
    recipe,
    before=(),
    after=(),
    part="",
    keep="last",
):
    """Fits a compiled model, from where its checkpoint left it.

    Args:
        model: A compiled model.
        batches: What it trains on; an epoch is a function of `batches.epoch`.
        validation: What it is validated on after every epoch.
        epochs: Epochs of the whole training.
        checkpoint: A `TrainingCheckpoint` in a folder of the run's folder.
        recipe: Name of the recipe, for what is said on an interruption.
        before: Callbacks that come before the checkpoint.
        after: Callbacks that come after it.
        part: What of several this trains, as in "seed 1".
        keep: `"last"` or `"best"`: the epoch whose weights the model ends with.

    Raises:
        FullDisk: If a checkpoint cannot be written.
        FloatingPointError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: If it is interrupted, with how to go on.
    """
    first = checkpoint.restore(model)
    if first:
        print(f"Going on after epoch {first} of {epochs}.")
    bar = ProgressBar()
    try:
        with room_for(checkpoint.folder.parent, recipe):
            if first < epochs:
                model.fit(
                    batches,
                    epochs=epochs,
                    initial_epoch=first,
                    validation_data=validation,
                    callbacks=[
                        data.FollowEpochs(batches),
                        bar,
                        keras.callbacks.TerminateOnNaN(),
                        *before,
                        checkpoint,
                        *after,
                    ],
                    shuffle=False,  # the batches are shuffled, by our seed
                    verbose=0,
                )
    except KeyboardInterrupt:
        message = _how_to_go_on(checkpoint, recipe, part)
        raise KeyboardInterrupt(message) from None
    except Exception as error:
        # JAX may stumble over what an interruption left behind.
        if isinstance(error.__context__, KeyboardInterrupt):
            message = _how_to_go_on(checkpoint, recipe, part)
            raise KeyboardInterrupt(message) from None
        # Of what went wrong with a batch, TensorFlow leaves a text only.
        raise getattr(batches, "error", None) or error from None
    finally:
        bar.close()
        batches.close()
    if checkpoint.epochs_done < epochs:
        raise FloatingPointError(
            "The loss became NaN or infinite in epoch "
            f"{checkpoint.epochs_done + 1}{part and f' of {part}'}. Lower the "
            "learning rate, lengthen the warm-up or clip gradients harder. "
            f"{_what_is_kept(checkpoint, part)}"
        )
    if keep == "best":
        checkpoint.load_best(model)


def linear_adamw(settings, total_steps):
    """AdamW with the rate, decay and clipping of a recipe for text.

    Args:
        settings: A `Training` in which every setting has a value.
        total_steps: Steps of the whole training.
    """
    rate = WarmupLinear(
        settings.learning_rate,
        total_steps,
        int(total_steps * settings.warmup_fraction),
    )
    return AdamW(
        rate,
        weight_decay=settings.weight_decay,
        epsilon=settings.epsilon,
        global_clipnorm=settings.clip_norm or None,
    )


def epochs_of(settings, steps):
    """How long a `Training` is: its epochs, or its steps up to whole ones.

    Args:
        settings: A `Training` in which every setting has a value.
        steps: In an epoch.
    """
    return settings.epochs or -(-settings.steps // steps)


def _what_is_kept(checkpoint, part):
    if not checkpoint.epochs_done:
        if part:
            return f"No epoch of {part} had ended."
        return "No epoch had ended, so there is no model."
    return (
        f"The weights after epoch {checkpoint.epochs_done}"
        f"{part and f' of {part}'} are kept in {checkpoint.folder}."
    )


def _how_to_go_on(checkpoint, recipe, part):
    folder = checkpoint.folder.parent
    how = f"Go on with: python -m recipes.{recipe} --resume {folder}"
    return f"Interrupted. {_what_is_kept(checkpoint, part)} {how}"
