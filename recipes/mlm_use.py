"""A masked language model at work: measured on text, or asked to fill masks."""

import dataclasses

import numpy as np

from recipes import checks
from recipes import mlm_text
from recipes import runs
from recipes import text_baseline
from recipes import text_corpus
from recipes import text_models
from recipes import text_use
from recipes.mlm_settings import EVALUATE
from recipes.mlm_settings import FILL
from recipes.mlm_settings import Config
from recipes.mlm_settings import check
from recipes.mlm_settings import resolve

# In a run's folder: how often every token stands in its training text.
COUNTS_FILE = "token_counts.npy"


def evaluate(config):
    """Measures a trained model on its held-out text, or on other text."""
    if config.model.from_ is not None:
        raise ValueError(
            "--evaluate names the model already: give it without --from."
        )
    checks.refuse_others(config, "evaluate", EVALUATE)
    check(config)
    record = text_models.saved_run(config.evaluate)
    saved = saved_settings(config.evaluate, record)
    settings, _ = resolve(how(config, saved))
    model = text_models.open_masked_lm(config.evaluate)
    documents, what, notes = documents_for(
        config, saved, record, model.tokenizer
    )
    runs.show_notes(notes)
    batches = mlm_text.held_out_batches(
        documents,
        model.tokenizer,
        model.backbone.sequence_length,
        settings,
        config.seed,
    )
    model.compile()
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    results = {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "mask_rate": settings.mask_rate,
        "vocabulary_size": model.tokenizer.vocabulary_size,
        "rows": batches.num_rows,
    }
    results |= unigram(config.evaluate, batches, model.tokenizer)
    rows = runs.counted(results["rows"], "row")
    runs.show(
        f"{config.evaluate} on {rows} of {what}",
        score_rows(results, "perplexity of masked tokens"),
    )
    return results


def saved_settings(name, record):
    """The settings of the run that is measured, or `None` if there is none."""
    return text_use.saved_settings(
        name, record, "mlm", Config, "masked language model"
    )


def how(config, saved):
    """The settings by which it is masked: those given, the run's, defaults."""
    if saved is None:
        return config
    asked = {
        name: getattr(config.training, name)
        for name in ("mask_rate", "whole_words", "batch_size")
        if getattr(config.training, name) is not None
    }
    return dataclasses.replace(
        saved, training=dataclasses.replace(saved.training, **asked)
    )


def documents_for(config, saved, record, tokenizer):
    """What is measured, as in `text_use.documents_for`."""

    def unchanged(split):
        digest = text_corpus.data_digest(split, tokenizer)
        return record["results"].get("data_digest") == digest

    return text_use.documents_for(config, saved, unchanged)


def unigram(name, batches, tokenizer):
    """What frequencies in the training text alone score, if known."""
    path = text_models.run_folder(name) / COUNTS_FILE
    if not path.is_file():
        return {}
    counts = np.load(path)
    if len(counts) != tokenizer.vocabulary_size:
        return {}
    found = text_baseline.unigram_perplexity(
        batches, counts, tokenizer.special_ids
    )
    return {"unigram_perplexity": found}


def score_rows(results, title):
    """What was measured, as the rows of a table."""
    rows = {title: f"{results['perplexity']:.2f}"}
    if "unigram_perplexity" in results:
        rows["the same by the frequencies of tokens alone"] = (
            f"{results['unigram_perplexity']:.2f}"
        )
    if "vocabulary_size" in results:
        rows["the same by guessing among all tokens"] = (
            f"{results['vocabulary_size']:,}, the vocabulary"
        )
    rows["masked tokens found"] = f"{results['accuracy']:.4f}"
    if "mask_rate" in results:
        rows["masked tokens"] = (
            f"{100 * results['mask_rate']:g}% of all; of these, 80% are "
            "<mask>, 10% another token, 10% as they were"
        )
    return rows


def fill(config):
    """Says which tokens the masks in texts may stand for."""
    if config.model.from_ is None:
        raise ValueError("Say which model shall fill it in: --from runs/mlm")
    checks.refuse_others(config, "fill", FILL)
    if not config.fill:
        raise ValueError(
            "There are no texts with a <mask> in them. "
            "Received: --fill without any"
        )
    model = text_models.open_masked_lm(config.model.from_)
    answers = []
    for text in config.fill:
        found = model.fill_mask(text)
        answers.append(found)
        masks = found if isinstance(found[0], list) else [found]
        for i, candidates in enumerate(masks, 1):
            title = text if len(masks) == 1 else f"{text} (mask {i})"
            runs.show(
                title, {c.token: f"{c.probability:.1%}" for c in candidates}
            )
    return answers
