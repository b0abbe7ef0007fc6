"""Does a language model see what it is to predict?

Two checks that know nothing about how a model is made.

*Resampling.* Tokens from a cut on are replaced by others, all of them, and
what comes out before the cut must not change. A whole suffix and many trials,
since a route that is chosen by a maximum has no gradient, hardly ever reacts
to one token, and yet tells of all of them.

A model whose tokens do not look at each other cannot react to another future,
whatever its structure is: fresh models often start so. A check of one says
nothing, and the report says that.

*The floor.* On tokens drawn independently and uniformly from K of them, no
honest model's loss falls below ln K. One that does has learned to look.
"""

import dataclasses
import math
import warnings

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.ops.compiled import compiled
from mlp_mixers.training.optimizer import AdamW

# A matrix without an entry above this hides what goes through it.
ASLEEP = 1e-4


@dataclasses.dataclass(frozen=True)
class LeakReport:
    """What `leaks_future` has found. It is true if the model leaks.

    Attributes:
        trials: How many suffixes were resampled.
        leaking: In how many of them an earlier output changed.
        worst: Largest change of an earlier output, over the largest output.
        where: `(position, cut)` of that change, or `None`.
        mixes: Whether tokens have an influence on later outputs, by more than
            rounding. Where they have none, `leaking == 0` says nothing.
        asleep: Paths of the matrices that are zero, or as good as, such as
            the last ones of fresh experts. What depends on the future behind
            them does not show.
        random_weights: Whether the weights were random ones.
        floor: ln K, or `None` where nothing was trained.
        loss: Loss on random tokens in the end of the training.
    """

    trials: int
    leaking: int
    worst: float
    where: tuple | None
    mixes: bool
    asleep: tuple = ()
    random_weights: bool = False
    floor: float | None = None
    loss: float | None = None

    @property
    def below_floor(self):
        """Whether the loss fell below what an honest model can reach.

        By 2%: the tokens of a few steps are not quite uniform.
        """
        return self.loss is not None and self.loss < 0.98 * self.floor

    @property
    def conclusive(self):
        """Whether this says anything: a leak was found, or could have been."""
        return bool(self) or (self.mixes and not self.asleep)

    @property
    def doubt(self):
        """Why this says nothing, and what to do; `None` if it does."""
        if self.conclusive:
            return None
        if not self.mixes:
            why = "no token has any influence on later outputs"
        else:
            why = f"nothing passes {_listed(self.asleep)}, near zero"
        advice = "check a trained model, or pass `random_weights=True`"
        if self.random_weights:
            advice = "it is so with random weights too"
        return f"this says nothing, since {why}: {advice}"

    def __bool__(self):
        return self.leaking > 0 or self.below_floor

    def __str__(self):
        lines = [
            f"{self.leaking} of {self.trials} resampled suffixes changed an "
            f"earlier output (by {self.worst:.1e} at most)"
        ]
        if self.loss is not None:
            lines.append(
                f"loss on random tokens {self.loss:.4f}, floor {self.floor:.4f}"
            )
        if self.doubt:
            lines.append(self.doubt)
        verdict = "leaks" if self else "causal"
        if not self.conclusive:
            verdict = "not known"
        return f"{verdict}: {'; '.join(lines)}"


def leaks_future(
    model,
    training=False,
    *,
    trials=64,
    vocabulary_size=None,
    sequence_length=None,
    make_inputs=None,
    random_weights=False,
    tolerance=1e-4,
    training_steps=0,
    num_tokens=4,
    first_position=None,
    batch_size=32,
    learning_rate=3e-3,
    seed=0,
):
    """Finds out whether outputs depend on tokens that come after them.

    Args:
        model: A Keras model from tokens to outputs with a time axis,
            `(batch, n, ...)`. It is left as it was.
        training: Whether to call it as in training: routers may be causal in
            inference and not in training. What is drawn, dropout and noise,
            is the same in both calls of a trial.
        trials: Number of suffixes to resample.
        vocabulary_size: Number of tokens; the model's own if `None`.
        sequence_length: Number of tokens of an input. `None` takes the
            model's, or the length that its `keras.Input` has.
        make_inputs: Function from int32 tokens `(batch, n)` to the model's
            inputs. `None` takes the tokens themselves, or for a model with
            inputs by name `token_ids` and, if asked for, a `padding_mask` of
            ones.
        random_weights: Whether to check a model of this kind and not this
            very one: with random weights in all places, put back in the end.
            Fresh models need it, whose tokens do not look at each other yet,
            or whose experts give nothing back: without it the report is not
            `conclusive`, and a warning says so.
        tolerance: Changes below this, relative to the largest output, are
            rounding.
        training_steps: With more than zero, a fresh copy of the model is
            trained on random tokens for so many steps, to see whether its
            loss stays above the floor. Needs a model that returns logits.
        num_tokens: K, from how many tokens those are drawn.
        first_position: Outputs count from this one on, for models that are
            asked for later ones only; the model's `first_predicted` if it has
            one, else 0. Earlier ones may know what they like.
        batch_size: Of that training.
        learning_rate: Of that training.
        seed: Of all that is drawn here.

    Returns:
        A `LeakReport`, which is true if the model leaks. One that is false
        and not `conclusive` is no proof of anything.

    Raises:
        ValueError: If sizes are not known or no output has a time axis.

    Example:

    ```python
    report = leaks_future(
        model, vocabulary_size=1000, sequence_length=64, random_weights=True
    )
    if report or not report.conclusive:
        print(report)
    ```
    """
    trials = positive_integer(trials, "trials")
    size = _known(model, "vocabulary_size", vocabulary_size)
    n = _known(model, "sequence_length", sequence_length)
    if n < 2 or size < 2:
        raise ValueError(
            "A future needs two tokens, and two that differ. Received: "
            f"sequence_length={n}, vocabulary_size={size}"
        )
    if first_position is None:
        first_position = getattr(model, "first_predicted", 0)
    first = natural_number(first_position, "first_position")
    if first > n - 2:
        raise ValueError(
            "No output that counts has a future. Received: "
            f"first_position={first}, sequence_length={n}"
        )
    rng = np.random.default_rng(seed)
    make_inputs = make_inputs or _inputs_for(model)

    def call(inputs):
        return keras.tree.flatten(model(inputs, training=training))

    run = compiled(call, model.variables)

    def outputs(tokens):
        inputs = keras.tree.map_structure(
            ops.convert_to_tensor, make_inputs(tokens)
        )
        return _with_time_axis(run(inputs), n)

    kept = [ops.convert_to_numpy(v) for v in model.variables]
    try:
        if random_weights:
            _randomize(model, rng)
        places = range(first, n)
        found = _resample(model, outputs, trials, size, places, tolerance, rng)
        found["asleep"] = _asleep(model, min(tolerance, ASLEEP))
    finally:
        _restore(model, kept)
    if training_steps:
        k = min(positive_integer(num_tokens, "num_tokens"), size)
        loss = _train(
            model,
            make_inputs,
            RandomTokens(k, n, batch_size, training_steps, first, seed),
            learning_rate,
        )
        found.update(floor=math.log(k), loss=loss)
    report = LeakReport(trials, random_weights=random_weights, **found)
    if not report.conclusive:
        warnings.warn(str(report), stacklevel=2)
    return report


def _known(model, name, given):
    """A size that is given, the model's, its backbone's, or its input's."""
    if given is not None:
        return positive_integer(given, name)
    for owner in (model, getattr(model, "backbone", None)):
        if isinstance(getattr(owner, name, None), int):
            return getattr(owner, name)
    if name == "sequence_length" and _input_length(model):
        return _input_length(model)
    raise ValueError(
        f"The model does not say its `{name}`: pass it. Received: {name}=None"
    )


def _input_length(model):
    """How many tokens a model's input has, `None` if it is open."""
    inputs = getattr(model, "input", None)
    if isinstance(inputs, dict):
        inputs = inputs.get("token_ids")
    shape = getattr(inputs, "shape", None) or ()
    return shape[1] if len(shape) > 1 else None


def _inputs_for(model):
    names = model.input if isinstance(getattr(model, "input", 0), dict) else {}

    def make(tokens):
        if not names:
            return tokens
        inputs = {"token_ids": tokens}
        if "padding_mask" in names:
            inputs["padding_mask"] = np.ones(tokens.shape, "int32")
        return inputs

    return make


def _with_time_axis(outputs, n):
    """The first output with a time axis, as a float64 array."""
    for output in outputs:
        if len(output.shape) > 1 and output.shape[1] == n:
            output = ops.convert_to_numpy(ops.cast(output, "float32"))
            return output.astype("float64")
    raise ValueError(
        f"None of the model's outputs has shape (batch, {n}, ...), so there "
        "are no earlier ones. Received: outputs of shapes "
        f"{[tuple(output.shape) for output in outputs]}"
    )


def _resample(model, outputs, trials, size, places, tolerance, rng):
    """What another future changes in the outputs at `places`, a range."""
    first, n = places.start, places.stop
    leaking, worst, where, mixes = 0, 0.0, None, False
    for _ in range(trials):
        tokens = rng.integers(0, size, (1, n)).astype("int32")
        cut = int(rng.integers(first + 1, n))
        other = tokens.copy()
        other[:, cut:] = _others(tokens[:, cut:], size, rng)
        noise = int(rng.integers(2**31))
        _seed(model, noise)
        one = outputs(tokens)
        _seed(model, noise)  # the same for both
        two = outputs(other)
        change = np.abs(one - two) / max(np.abs(one).max(), 1e-12)
        change = change.reshape(n, -1).max(1)[first:cut]
        if change.max() > tolerance:
            leaking += 1
        if change.max() > worst:
            worst = float(change.max())
            where = first + int(change.argmax()), cut
        if not mixes:
            _seed(model, noise)
            change = _change_of_last(outputs, tokens, one, size, rng)
            mixes = change > tolerance
    return {
        "leaking": leaking,
        "worst": worst,
        "where": where,
        "mixes": mixes,
    }


def _change_of_last(outputs, tokens, before, size, rng):
    """How much other tokens before it change the last output.

    By the same measure as changes of earlier outputs: a model that does not
    react here by more than rounding would not there either.
    """
    other = tokens.copy()
    other[:, :-1] = _others(tokens[:, :-1], size, rng)
    change = np.abs(outputs(other) - before)[:, -1]
    return float(change.max() / max(np.abs(before).max(), 1e-12))


def _asleep(model, small):
    """Paths of the trained matrices without an entry above `small`."""
    matrices = [v for v in model.trainable_variables if len(v.shape) > 1]
    return tuple(
        v.path
        for v in matrices
        if np.abs(ops.convert_to_numpy(ops.cast(v, "float32"))).max() <= small
    )


def _listed(names, most=2):
    """The first names, and how many more there are."""
    text = ", ".join(names[:most])
    rest = len(names) - most
    return f"{text} and {rest} more" if rest > 0 else text


def _others(tokens, size, rng):
    """Tokens that all differ from these."""
    return (tokens + rng.integers(1, size, tokens.shape)) % size


def _randomize(model, rng):
    for variable in model.trainable_variables:
        value = ops.convert_to_numpy(variable)
        variable.assign(value + 0.3 * rng.normal(size=value.shape))


def _seed(model, seed):
    """Sets what dropout, jitter and the like draw from."""
    for i, variable in enumerate(model.variables):
        if variable.path.endswith("seed_generator_state"):
            variable.assign(np.array([seed, i], variable.dtype))


def _restore(model, values):
    for variable, value in zip(model.variables, values):
        variable.assign(value)


class RandomTokens(keras.utils.PyDataset):
    """Batches of tokens drawn independently and uniformly, new ones always.

    Args:
        num_tokens: K, how many tokens there are.
        length: Tokens of an input, n.
        batch_size: Rows in a batch.
        steps: Number of batches.
        first_position: Outputs before this one have weight 0.
        seed: Integer.
    """

    def __init__(
        self, num_tokens, length, batch_size, steps, first_position=0, seed=0
    ):
        super().__init__(workers=1, use_multiprocessing=False)
        self.num_tokens, self.length = num_tokens, length
        self.batch_size, self.steps = batch_size, steps
        self.first_position, self.seed = first_position, seed
        self.make_inputs = lambda tokens: tokens

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        rng = np.random.default_rng([self.seed, index])
        shape = self.batch_size, self.length + 1
        rows = rng.integers(0, self.num_tokens, shape).astype("int32")
        weights = np.ones((self.batch_size, self.length), "float32")
        weights[:, : self.first_position] = 0
        return self.make_inputs(rows[:, :-1]), rows[:, 1:], weights


def _train(model, make_inputs, batches, learning_rate):
    """The mean loss of a fresh copy in the last tenth of a training."""
    copy = type(model).from_config(model.get_config())
    copy.compile(
        AdamW(learning_rate=learning_rate, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        metrics=[],
        # The loss alone would count what routers add to it.
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(
                from_logits=True, name="cross_entropy"
            )
        ],
    )
    batches.make_inputs = make_inputs
    losses = _BatchLosses(from_step=batches.steps - max(batches.steps // 10, 1))
    copy.fit(batches, verbose=0, shuffle=False, callbacks=[losses])
    return losses.mean


class _BatchLosses(keras.callbacks.Callback):
    """Mean cross-entropy from a step on; Keras keeps that of all steps."""

    def __init__(self, from_step):
        super().__init__()
        self.from_step = from_step
        self.before, self.after, self.steps = 0.0, 0.0, 0

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["cross_entropy"]) * (batch + 1)
        if batch < self.from_step:
            self.before = total
        self.after, self.steps = total, batch + 1

    @property
    def mean(self):
        counted = self.steps - max(self.from_step, 0)
        return (self.after - self.before) / max(counted, 1)
