"""Runs a study of many trainings, one after another, resumably.

A study is a plan, a list of keys, and a function that trains for one key.
Every finished run is written to one file at once. A second call does only
what is missing, so that an interrupted study goes on where it stopped.

Small models do not fill several cores: `--jobs 2` trains two at a time, each
in a process of its own with its share of the threads, and is faster than one
after another with all of them.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import statistics
import threading
import time
from collections.abc import Callable

from recipes import runs


@dataclasses.dataclass(frozen=True)
class Study:
    """What to run and how to show it.

    Attributes:
        name: For the file of results, `runs/NAME.json`.
        settings: What all runs share, as JSON; a file with others is refused.
        plan: Keys of all runs: tuples of names and numbers.
        train: Function from a key to a dictionary of results, of which
            `seconds` and `shown` are shown on the way. With `--jobs` it runs
            in another process: a function of a module, or a partial.
        table: Function from the list of runs to Markdown. A run is its
            results with its key under `key`.
        shown: Name of the result to show.
    """

    name: str
    settings: dict
    plan: list
    train: Callable
    table: Callable
    shown: str = "test_accuracy"


def command_line(documentation):
    """The parser of a study, to which it may add options of its own.

    Args:
        documentation: Of the study's module; its first line is shown.
    """
    parser = argparse.ArgumentParser(description=documentation.splitlines()[0])
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        help="file for the results; what it holds is not run again "
        "(default: runs/NAME.json)",
    )
    parser.add_argument(
        "--report", action="store_true", help="only print what is there"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="trainings at the same time"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="run only keys that begin with these words",
    )
    return parser


def main(study, given):
    """Runs what is missing and prints the table.

    Args:
        study: A `Study`.
        given: What the parser of `command_line` has read.
    """
    path = given.out or pathlib.Path(f"runs/{study.name}.json")
    finished = read(path, study.settings)
    if not given.report:
        chosen = [k for k in study.plan if _begins_with(k, given.only)]
        _run_missing(study, chosen, path, finished, given.jobs)
    print(f"\n{study.table(finished)}")


def _begins_with(key, words):
    return [str(part) for part in key[: len(words)]] == list(words)


def _run_missing(study, plan, path, finished, jobs):
    done = {tuple(run["key"]) for run in finished}
    missing = [key for key in plan if tuple(key) not in done]
    begin = time.perf_counter()
    results = _one_by_one if jobs == 1 else _at_the_same_time
    for i, (key, result) in enumerate(results(study.train, missing, jobs), 1):
        finished.append({"key": list(key), **result})
        write(path, study.settings, finished)
        run, spent = finished[-1], time.perf_counter() - begin
        left = spent / i * (len(missing) - i)
        print(
            f"{i}/{len(missing)}  {' '.join(map(str, key))}  "
            f"{study.shown.replace('_', ' ')} {run[study.shown]:.4f}  "
            f"{run['seconds']:.0f} s, {left / 60:.0f} min left",
            flush=True,
        )


def _one_by_one(train, keys, _):
    for key in keys:
        yield key, train(*key)


def _at_the_same_time(train, keys, jobs):
    """Pairs of key and result, in the order in which they are finished."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(name, threads)  # the processes inherit it
    pool = concurrent.futures.ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
        max_tasks_per_child=1,
    )
    with pool:
        runs_of = {pool.submit(train, *key): key for key in keys}
        try:
            for run in concurrent.futures.as_completed(runs_of):
                yield runs_of[run], run.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent():
    """Ends this process as soon as the one that started it has ended.

    A study that is killed cannot say so to its processes, which would train
    on and then wait for ever.
    """

    def wait():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def read(path, settings):
    """The runs recorded in `path` so far.

    Raises:
        ValueError: If they were made with other settings.
    """
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content["settings"] != json.loads(json.dumps(settings)):
        raise ValueError(
            f"{path} holds runs with other settings; choose another `--out`. "
            f"Received: {settings}, found: {content['settings']}"
        )
    return content["runs"]


def write(path, settings, finished):
    """Replaces the file as a whole, so that no interruption can halve it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    content = {
        "settings": settings,
        "versions": runs.versions(),
        "runs": finished,
    }
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(unfinished, path)


def mean_and_std(values, form):
    """`mean ± standard deviation`, each in the format `form`."""
    values = list(values)
    mean = form.format(statistics.mean(values))
    if len(values) < 2:
        return mean
    return f"{mean} ± {form.format(statistics.stdev(values))}"
