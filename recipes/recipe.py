"""What all recipes do alike: begin a run, go on with it, or something else."""

import dataclasses
import pathlib
from collections.abc import Callable

from recipes import runs
from recipes.checks import flat
from recipes.records import from_record


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What tells a recipe from the others.

    Attributes:
        name: Of its module in `recipes`.
        config_class: Dataclass of its settings.
        prepare: Function of a configuration to all that a run needs, made
            before its folder, so that whatever can be wrong is said before.
            What it returns has `built`, a dictionary of the sizes that came of
            the settings, and `identity`, one of what must not change when a
            run goes on.
        run: Function of `(folder, configuration, prepared)` that trains,
            measures and records; it returns the results.
        report: Function of `(folder, results)` that prints them.
        result_keys: Names that `results.json` must have.
        instead: What else can be asked for: dictionary from the name of a
            setting to a function of a configuration.
        apart: Names of other settings that change nothing in a training.
    """

    name: str
    config_class: type
    prepare: Callable
    run: Callable
    report: Callable
    result_keys: tuple
    instead: dict
    apart: tuple = ()

    def main(self, config):
        """Does what the settings ask for.

        Raises:
            ValueError: If a setting is out of range, or what it names cannot
                be had.
            FloatingPointError: If the loss becomes NaN or infinite.
            KeyboardInterrupt: If it is interrupted, with how to go on.
        """
        for name, function in self.instead.items():
            if getattr(config, name) is not None:
                return function(config)
        if config.resume is not None:
            return self.resume(config)
        return self.start(config)

    def start(self, config):
        """A new run in a new folder."""
        prepared = self.prepare(config)
        folder = runs.new_folder(config.out)
        # What was asked for, what came of it, and what must not change.
        runs.record(
            folder,
            "config.json",
            {
                **dataclasses.asdict(config),
                "built": prepared.built,
                "identity": prepared.identity,
            },
        )
        return self.run(folder, config, prepared)

    def resume(self, config):
        """The rest of an interrupted run, in its folder, with its settings.

        Raises:
            ValueError: If the folder holds no run, or one of another recipe,
                other settings are given, or what it began with has changed.
        """
        folder = pathlib.Path(config.resume).expanduser()
        if dataclasses.replace(config, resume=None) != self.config_class():
            raise ValueError(
                "A run goes on with its own settings: give --resume alone. "
                "(For other settings, start a new run, with --from if you "
                "like.)"
            )
        record = self._record_in(folder)
        if (folder / "results.json").exists():
            print(f"The run in {folder} has finished.")
            results = runs.read(folder / "results.json", self.result_keys)
            self.report(folder, results)
            return results
        config = from_record(self.config_class, record)
        prepared = self.prepare(config)
        check_identity(folder, record, prepared.identity)
        return self.run(folder, config, prepared)

    def settings_of_training(self, config):
        """`{name: value}` of what must stay as it is from epoch to epoch.

        Flat, so that a difference is named by itself.
        """
        others = "out", "resume", "workers", *self.instead, *self.apart
        return {k: v for k, v in flat(config).items() if k not in others}

    def _record_in(self, folder):
        """The `config.json` of a run of this recipe."""
        if not (folder / "config.json").is_file():
            raise ValueError(
                "There is no run to go on with in this folder: it has no "
                f"config.json. Received: --resume {folder}"
            )
        record = runs.read(folder / "config.json")
        other = runs.recipe_of(record)
        if other not in (None, self.name):
            raise ValueError(
                f"The run in {folder} is one of recipes.{other}. Go on with: "
                f"python -m recipes.{other} --resume {folder}"
            )
        return record


def check_identity(folder, record, identity):
    """Raises a ValueError if what must not change is not what it was.

    Args:
        folder: Of the run.
        record: What its `config.json` says.
        identity: Dictionary of what there is now, in words and digests.
    """
    saved = record.get("identity")
    if not isinstance(saved, dict):  # of an older version
        return
    changed = [k for k, v in identity.items() if saved.get(k) != v]
    if changed:
        raise ValueError(
            f"The run in {folder} began with another "
            f"{' and another '.join(changed)}. Go on with the same, or start a "
            "new run."
        )
