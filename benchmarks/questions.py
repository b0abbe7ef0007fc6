"""Benchmarks of several questions: which to ask, of which backends, and how.

A question is a tuple of sides. Each side is a worker, and all of a question
take turns; see `protocol`.
"""

import argparse
import os
import tempfile

from benchmarks.protocol import print_environment
from benchmarks.protocol import quiet_or_exit
from benchmarks.protocol import take_turns

TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


def parse(description, questions, repeats):
    """The command line.

    Args:
        description: Docstring of the benchmark; `--help` has its first line.
        questions: Dictionary from the name of a question to its sides.
        repeats: Steps that count, unless others are asked for.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--backends", nargs="*", choices=TITLES, default=tuple(TITLES)
    )
    parser.add_argument(
        "--questions", nargs="*", choices=questions, default=tuple(questions)
    )
    parser.add_argument(
        "--anyway", action="store_true", help="measure on a busy machine too"
    )
    return parser.parse_args()


def ask(name, questions, arguments, without_backend=()):
    """Asks, and prints what it was asked on.

    Args:
        name: Of the benchmark's module; its workers are in `NAME_worker`.
        questions: Dictionary from the name of a question to its sides.
        arguments: What `parse` returns.
        without_backend: Questions in which no backend has a part: they are
            asked once, of `"any"`.

    Returns:
        `{question: {backend: {side: result}}}`, results as of `take_turns`.
    """
    before, busy = quiet_or_exit(arguments.anyway)
    results = {}
    with tempfile.TemporaryDirectory() as logs:
        for question in arguments.questions:
            found = results[question] = {}
            for backend in arguments.backends:
                key = "any" if question in without_backend else backend
                if key not in found:
                    found[key] = take_turns(
                        f"benchmarks.{name}_worker",
                        questions[question],
                        backend,
                        arguments.threads,
                        arguments.repeats,
                        logs,
                    )
    asked = [sides for found in results.values() for sides in found.values()]
    print_environment(name, arguments, asked, before, busy)
    return results
