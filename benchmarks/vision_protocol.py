"""How the benchmark talks to its workers: one line of JSON, one back.

Only the standard library, since a worker may live in an environment that has
neither Keras nor this package.
"""

import contextlib
import json
import os
import subprocess
import sys
import time


def serve(answers):
    """Answers the parent's questions until it closes the pipe.

    Args:
        answers: Maps the name of a question to `() -> seconds or dictionary`.
    """
    # What libraries print must not mix with the answers.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        replies.write(json.dumps(answers[line.strip()]()) + "\n")
        replies.flush()


def timed(call):
    """Returns `() -> seconds`, the wall time of one call."""

    def seconds():
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return seconds


def use_cores(threads):
    """Binds this process to so many cores, before a library counts them.

    XLA's thread pool has no other public setting, so all are bound.
    """
    allowed = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, allowed)


def peak_memory():
    """Peak resident memory of this process in MiB, since its start.

    All of it: interpreter, libraries, compiler, weights, optimiser state and
    activations (`VmHWM`).
    """
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmHWM")


class Worker:
    """A process that does one thing at a time, and only when asked.

    Args:
        command: The process and its arguments.
        environment: Variables to set.
        log: Path of the file that gets what it prints.
    """

    def __init__(self, command, environment, log):
        self.log = log
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )

    def ask(self, question):
        """Returns the answer.

        Raises:
            RuntimeError: If the worker has died, with its last words.
        """
        # A worker that has died shows by its empty answer below.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            with open(self.log) as log:
                last = log.read()[-2000:]
            raise RuntimeError(
                f"{' '.join(self.process.args)} ended at {question!r}:\n{last}"
            )
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
