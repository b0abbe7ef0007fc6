"""Asks a trained causal language model: to write on, and to choose."""

import numpy as np

from mlp_mixers import data
from mlp_mixers.models import SMLPCausalLM
from recipes import checks
from recipes import runs
from recipes import text_models

GENERATE = ("from_", "max_length", "temperature", "top_k", "top_p", "seed")
ZERO_SHOT = ("from_",)


def open_model(config, mode):
    """The model of --from."""
    if config.model.from_ is None:
        raise ValueError(
            f"Say which model shall answer --{checks.dashed(mode)}: "
            "--from runs/causal_lm"
        )
    folder = text_models.find(config.model.from_)
    text_models.tokenizer_in(folder)
    model = SMLPCausalLM.from_preset(folder)
    text_models.check_finite(model, folder)
    return model


def generate(config):
    """Continues texts; returns them."""
    checks.refuse_others(config, "generate", GENERATE)
    if not config.generate:
        raise ValueError("There is no text to continue: --generate TEXT")
    checks.check_seeds(config.seed)
    model = open_model(config, "generate")
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
        runs.show(prompt, {"": text})
    return texts


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
    model = open_model(config, "zero_shot")
    found, rows = {}, []
    for task in tasks:
        scores = choose(model, task)
        found[task.name] = scores
        rows.append(
            [
                task.name,
                f"{len(task):,}",
                *(
                    f"{scores[k]:.1%}" if k in scores else ""
                    for k in ("accuracy", "accuracy_by_token", "chance")
                ),
                f"{scores['cut']:,}",
            ]
        )
    runs.show_table(
        "Multiple choice, no training",
        ("task", "questions", "right", "by token", "most frequent", "cut"),
        rows,
    )
    print(
        "right: the answer with the largest summed log-probability; by token: "
        "the largest mean; cut: questions that were cut at their beginning"
    )
    return found


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
        Dictionary of `answers`, the list of the chosen ones; of `accuracy`,
        `accuracy_by_token` and `chance`, the share of the most frequent
        answer, where labels are known; and `cut`, the number of questions
        that were too long.
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
    found = {"answers": answers.tolist(), "cut": cut}
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
