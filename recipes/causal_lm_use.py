"""A trained causal language model at work: it is measured, writes, chooses."""

import dataclasses
import re

import numpy as np
from rich.console import Console
from rich.text import Text

from mlp_mixers import data
from mlp_mixers.models import SMLPCausalLM
from recipes import checks
from recipes import runs
from recipes import text_baseline
from recipes import text_corpus
from recipes import text_models
from recipes import text_use
from recipes.causal_lm_settings import EVALUATE
from recipes.causal_lm_settings import GENERATE
from recipes.causal_lm_settings import ZERO_SHOT
from recipes.causal_lm_settings import Config
from recipes.causal_lm_settings import resolve

# In a run's folder: how often every token stands in its training text.
COUNTS_FILE = "token_counts.npy"
# So many choices are printed; all of them are written.
SHOWN = 20
# As many line ends in a row are told and not shown.
MANY_LINE_ENDS = re.compile(r"(?:[^\S\n]*\n){4,}")
# What would break a line of a TSV file.
BREAKS = re.compile(r"\s+")


def open_model(name):
    """The model that a name means: of a run, of one of its models, a preset."""
    folder = text_models.find(name)
    text_models.tokenizer_in(folder)
    model = SMLPCausalLM.from_preset(folder)
    text_models.check_finite(model, folder)
    return model


def asked_model(config, mode):
    """The model of --from."""
    if config.model.from_ is None:
        raise ValueError(
            f"Say which model shall answer --{checks.dashed(mode)}: "
            "--from runs/causal_lm"
        )
    return open_model(config.model.from_)


def model_folder(name):
    """The folder of a model: a run's, one of several in it, or a preset's."""
    folder = text_models.find(name)
    inside = folder.name == text_models.PRESET_FOLDER
    if inside and run_folder(folder.parent) is not None:
        return folder.parent
    return folder


def run_folder(place):
    """The folder of the run that a model's folder belongs to, or `None`."""
    for folder in (place, place.parent):
        path = folder / "config.json"  # a preset has one too
        if path.is_file() and runs.recipe_of(runs.read(path)) is not None:
            return folder
    return None


def evaluate(config):
    """Measures a trained model on its held-out text, or on other text."""
    if config.model.from_ is not None:
        raise ValueError(
            "--evaluate names the model already: give it without --from."
        )
    checks.refuse_others(config, "evaluate", EVALUATE)
    checks.check_seeds(config.seed)
    checks.check_ranges(config, positive=("window",))
    name = config.evaluate
    run = run_folder(model_folder(name))
    record = None if run is None else runs.read(run / "config.json", ("seed",))
    saved = text_use.saved_settings(
        name, record, "causal_lm", Config, "causal language model"
    )
    batch_size = batch_size_of(config, saved)
    model = open_model(name)
    check_window(config.window, model)

    def unchanged(split):
        identity = text_corpus.identity(split, model.tokenizer)
        return record.get("identity", {}).get("text") == identity["text"]

    documents, what, notes = text_use.documents_for(config, saved, unchanged)
    runs.show_notes(notes)
    results = measure(model, documents, batch_size, config.window)
    if run is not None and (run / COUNTS_FILE).is_file():
        results |= unigram(model, documents, run / COUNTS_FILE)
    show_measured(name, model, results, what)
    return results


def batch_size_of(config, saved):
    """Rows at a time: those given, the run's, the recipe's."""
    training = config.training if saved is None else saved.training
    if config.training.batch_size is not None:
        training = dataclasses.replace(
            training, batch_size=config.training.batch_size
        )
    return resolve(training).batch_size


def check_window(window, model):
    """Raises a ValueError if no token of the model is in the window."""
    first = model.backbone.prefix_length or 1
    last = model.backbone.sequence_length
    if window is not None and not first <= window <= last:
        raise ValueError(
            f"This model can be asked for the tokens {first} to {last} of a "
            f"row: begin the window there. Received: window={window}"
        )


def batches_of(model, documents, batch_size, first=0):
    """Rows of documents, of which the outputs from `first` on count."""
    length = model.backbone.sequence_length
    return data.CausalLMBatches(
        data.stream_documents(documents, model.tokenizer, length),
        model.tokenizer.pad_id,
        batch_size,
        first_predicted=first,
    )


def measure(model, documents, batch_size, window=None):
    """Perplexity and accuracy of a model, and perplexity in a window."""
    model.compile()
    batches = batches_of(model, documents, batch_size)
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    results = {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "first_predicted": model.first_predicted,
        "vocabulary_size": model.tokenizer.vocabulary_size,
        "rows": batches.num_rows,
    }
    if window is not None:
        # Output t predicts token t + 1.
        later = batches_of(model, documents, batch_size, window - 1)
        scores = model.evaluate(later, verbose=0, return_dict=True)
        results["window"] = window
        results["window_perplexity"] = scores["perplexity"]
    return results


def unigram(model, documents, path):
    """What frequencies in the training text alone score, if they are its."""
    counts = np.load(path)
    if len(counts) != model.tokenizer.vocabulary_size:
        return {}
    never = model.tokenizer.pad_id, model.tokenizer.mask_id
    found = text_baseline.unigram_perplexity(
        batches_of(model, documents, 32), counts, never, model.first_predicted
    )
    return {"unigram_perplexity": found}


def show_measured(name, model, results, what):
    """Prints what was measured."""
    rows = {"perplexity": f"{results['perplexity']:.2f}"}
    if "unigram_perplexity" in results:
        rows["the same by the frequencies of tokens alone"] = (
            f"{results['unigram_perplexity']:.2f}"
        )
    rows["the same by guessing among all tokens"] = (
        f"{results['vocabulary_size']:,}, the vocabulary"
    )
    rows["accuracy"] = f"{results['accuracy']:.1%}"
    if "window" in results:
        rows[f"perplexity from token {results['window']} of a row on"] = (
            f"{results['window_perplexity']:.2f}"
        )
    runs.show(
        f"{name} on {runs.counted(results['rows'], 'row')} of {what}", rows
    )
    if results["first_predicted"]:
        print(
            f"measured from token {results['first_predicted'] + 1} of a row on "
            "only: the ones before choose the route"
        )
    if model.backbone.sees_future:
        print("the model sees what it predicts: its scores mean nothing")


def generate(config):
    """Continues texts; returns them."""
    checks.refuse_others(config, "generate", GENERATE)
    if not config.generate:
        raise ValueError("There is no text to continue: --generate TEXT")
    checks.check_seeds(config.seed)
    model = asked_model(config, "generate")
    draws = config.top_k is not None or config.top_p is not None
    texts = model.generate(
        list(config.generate),
        max_length=config.max_length,
        sampler="sample" if draws or config.temperature != 1 else "greedy",
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
    )
    for prompt, text in zip(config.generate, texts):
        show_text(prompt, text)
    return texts


def show_text(prompt, text):
    """Prints a text after its prompt, which is bold in a terminal."""
    written = Text()
    if text.startswith(prompt):
        written.append(prompt, style="bold")
        text = text[len(prompt) :]
    written.append(shown(text))
    # Broken by the terminal, not by us: what is copied is as it was.
    Console(soft_wrap=True).print(written, end="\n\n")


def shown(text):
    """A text in which many line ends in a row are counted."""
    return MANY_LINE_ENDS.sub(
        lambda found: f"\n[{found.group().count(chr(10))} line ends]\n", text
    ).rstrip("\n")


def zero_shot(config):
    """Chooses answers without training; returns scores by task."""
    checks.refuse_others(config, "zero_shot", ZERO_SHOT)
    if not config.zero_shot:
        raise ValueError("There is no task: --zero-shot FILE.jsonl")
    tasks = [load_task(name) for name in config.zero_shot]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise ValueError(
            "Tasks are told apart by their names: rename a file. "
            f"Received: {', '.join(names)}"
        )
    model = asked_model(config, "zero_shot")
    found = {task.name: choose(model, task) for task in tasks}
    show_scores(tasks, found)
    place = model_folder(config.model.from_)
    for task in tasks:
        scores = found[task.name]
        if task.labels is None:
            show_choices(task, scores)
            if run_folder(place) is not None:
                write_choices(place / f"choices_{task.name}.tsv", task, scores)
        if scores["cut"]:
            length = model.backbone.sequence_length
            print(
                f"note: {scores['cut']:,} of "
                f"{runs.counted(len(task), 'question')} of {task.name} did not "
                f"fit in {length} tokens and lost the beginning: a model with "
                "a longer --sequence-length reads more of them"
            )
    return found


def show_scores(tasks, found):
    """Prints how often the choices were right, where that is known."""
    rows = []
    for task in tasks:
        scores = found[task.name]
        if task.labels is None:
            continue
        names = "accuracy", "accuracy_by_token", "chance"
        shares = [f"{scores[name]:.1%}" for name in names]
        rows.append(
            [task.name, f"{len(task):,}", *shares, f"{scores['cut']:,}"]
        )
    if not rows:
        return
    runs.show_table(
        "Multiple choice, no training",
        ("task", "questions", "right", "by token", "most frequent", "cut"),
        rows,
    )
    print(
        "right: the answer with the largest summed log-probability; by token: "
        "the largest mean; cut: questions that were cut at their beginning"
    )


def show_choices(task, scores):
    """Prints what was chosen, of a task without labels."""
    rows = [row[:3] for row in choices(task, scores)]
    left = len(rows) - SHOWN
    runs.show_table(
        f"{task.name}: no labels, so here is what was chosen"
        + (f", and {left:,} more" if left > 0 else ""),
        ("question", "choice", "answer"),
        rows[:SHOWN],
    )


def choices(task, scores):
    """`(question, choice, its text, choice by token)`, counted from 0."""
    by_token = scores["answers_by_token"]
    for i, (options, choice) in enumerate(zip(task.options, scores["answers"])):
        prompt, answer = options[choice]
        if len({continuation for _, continuation in options}) == 1:
            answer = f"{prompt} {answer}"  # it is the prompts that differ
        answer = BREAKS.sub(" ", answer).strip()
        yield task.ids[i], str(choice), answer, str(by_token[i])


def write_choices(path, task, scores):
    """Writes the choices as a TSV file, a question a line, and says so."""
    lines = ["id\tchoice\tanswer\tchoice_by_token"]
    for row in choices(task, scores):
        lines.append("\t".join(BREAKS.sub(" ", field) for field in row))
    try:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    except OSError as error:  # a model may be asked where nothing is written
        print(f"note: the choices could not be written: {error}")
    else:
        print(f"all of them are in {path}")


def load_task(name):
    """A `MultipleChoice`, of a file or of a GLUE folder."""
    if name.startswith("glue:"):
        return data.cloze_of(data.load_task(name))
    return data.load_choices(name)


def choose(model, task):
    """What a model answers, and how often that is right.

    Args:
        model: A `CausalLM` with a tokenizer.
        task: A `MultipleChoice`.

    Returns:
        Dictionary of `answers`, the list of the chosen ones, those with the
        largest sum; of `answers_by_token`, those with the largest mean; of
        `accuracy`, `accuracy_by_token` and `chance`, the share of the most
        frequent answer, where labels are known; and `cut`, the number of
        questions that were too long.
    """
    pairs, cut = [], 0
    for options in task.options:
        fitted = [fit(model, *pair) for pair in options]
        cut += any(was_cut for *_, was_cut in fitted)
        pairs += [(prompt, answer) for prompt, answer, _ in fitted]
    scored = model.score(*map(list, zip(*pairs)))
    ends = np.cumsum([len(options) for options in task.options])[:-1]
    sums = np.split(scored["log_probability"], ends)
    means = np.split(scored["log_probability"] / scored["tokens"], ends)
    answers = np.array([int(s.argmax()) for s in sums])
    by_token = np.array([int(m.argmax()) for m in means])
    found = {
        "answers": answers.tolist(),
        "answers_by_token": by_token.tolist(),
        "cut": cut,
    }
    if task.labels is not None:
        known = task.labels >= 0
        labels = task.labels[known]
        found.update(
            accuracy=float((answers[known] == labels).mean()),
            accuracy_by_token=float((by_token[known] == labels).mean()),
            chance=float(np.bincount(labels).max() / len(labels)),
        )
    return found


def fit(model, prompt, answer):
    """`(prompt, answer, whether cut)`: the prompt without its beginning if
    both are longer than the model reads."""
    tokenizer = model.tokenizer
    room = model.backbone.sequence_length
    answer_ids = tokenizer.encode([f" {answer}"])[0].ids
    prompt_ids = tokenizer.encode([f" {prompt}"])[0].ids
    left = room - len(answer_ids) - 1  # for `<cls>`
    if left < 0:
        raise ValueError(
            f"An answer is longer than the {room} tokens that the model "
            f"reads. Received: {answer!r}"
        )
    if len(prompt_ids) <= left:
        return prompt, answer, False
    begin = len(prompt_ids) - left
    while begin < len(prompt_ids):
        # Text that begins elsewhere may be other tokens, and more of them.
        kept = tokenizer.decode(prompt_ids[begin:]).strip()
        if len(tokenizer.encode([f" {kept}"])[0].ids) <= left:
            return kept, answer, True
        begin += 1
    return "", answer, True
