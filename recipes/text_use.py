"""Which text a trained language model is measured on, and how new that is."""

import dataclasses

from recipes import checks
from recipes import runs
from recipes import text_corpus
from recipes.records import from_record


def saved_settings(name, record, recipe, config_class, kind):
    """The settings of the run that is measured, or `None` if there is none.

    Args:
        name: Of the run, as it was typed.
        record: What its `config.json` says, or `None`.
        recipe: Name of the recipe that shall have written it.
        config_class: That recipe's dataclass of settings.
        kind: What it trains, in words.

    Raises:
        ValueError: If it is a run of another recipe.
    """
    if record is None:
        return None
    other = runs.recipe_of(record)
    if other != recipe:
        raise ValueError(
            f"{name} is a run of recipes.{other}, and no {kind} was trained "
            f"there. Measure it with: python -m recipes.{other} --evaluate "
            f"{name}"
        )
    return from_record(config_class, record)


def documents_for(config, saved, unchanged):
    """What is measured: `(documents, what it is in words, notes)`.

    Held-out text of the run is cut as it was then, so that nothing that was
    trained on is measured. What is asked for wins over what the run had.

    Args:
        config: A configuration with `evaluate`, `text` and `seed`.
        saved: That of the run, or `None`.
        unchanged: Function of a `TextSplit`: whether it is what the run had.
    """
    if saved is None and config.text.data is None:
        raise ValueError(
            "Nothing says which text this model was trained on: name one to "
            f"measure it on with --data. Received: --evaluate {config.evaluate}"
        )
    if saved is None:
        return other_text(config, None)
    was = text_corpus.filled(saved.text)
    if config.text.data not in (None, was.data):
        return other_text(config, saved)
    asked = checks.given(config.text)
    text = text_corpus.filled(dataclasses.replace(was, **asked))
    split = text_corpus.load(text, saved.seed, ", the text of the run")
    what = f"held-out text of {text.data}"
    notes = list(split.notes)
    if text != was:
        notes += seen(split.validation, saved)
    elif not unchanged(split):
        notes.append(
            "the text is not what it was when the model was trained: it may "
            "have seen some of what is measured"
        )
    return split.validation, what, notes


def other_text(config, saved):
    """The same for text that is not the run's: all of it, unless asked."""
    text = config.text
    if text.validation_fraction is None:
        documents, notes = text_corpus.load_whole(text)
        what = text.data
    else:
        split = text_corpus.load(text, config.seed)
        documents, notes = split.validation, split.notes
        what = f"held-out text of {text.data}"
    return documents, what, [*notes, *seen(documents, saved)]


def seen(documents, saved):
    """Notes on how much of what is measured was trained on."""
    unknown = (
        "the text that the model was trained on is not there to compare with: "
        "it may have seen some of what is measured"
    )
    if saved is None:
        return [unknown]
    try:
        trained = text_corpus.load(saved.text, saved.seed).train
    except (ValueError, OSError, ImportError):
        return [unknown]
    share = text_corpus.share_seen(documents, trained)
    if not share:
        return []
    return [
        f"{share:.1%} of the longer sentences that are measured stand in the "
        "text that the model was trained on"
    ]
