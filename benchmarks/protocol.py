"""How a benchmark talks to its workers: one line of JSON, one back.

Only the standard library at first, since a worker may live in an environment
that has neither Keras nor this package.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import time

# Above this load per core, other processes spoil the numbers.
QUIET = 0.5


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


def limit_threads(threads):
    """The same number of threads, however the backend is told of it."""
    use_cores(threads)
    backend = os.environ["KERAS_BACKEND"]
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    elif backend == "torch":
        import torch

        torch.set_num_threads(threads)


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


def quiet_or_exit(anyway):
    """Ends the program on a busy machine, unless it shall measure anyway.

    Returns:
        `(load average, whether the machine is busy)`.
    """
    load = os.getloadavg()[0]
    busy = load > QUIET * os.cpu_count()
    if busy and not anyway:
        sys.exit(
            f"The load average is {load:.1f} on {os.cpu_count()} cores: "
            "other processes are busy. Wait, or measure with --anyway."
        )
    return load, busy


def worker_environment(backend, threads):
    """Variables of a worker: its backend, its threads, how they wait."""
    return {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Threads that wait actively would slow the side whose turn it is.
        "OMP_WAIT_POLICY": "PASSIVE",
        **{
            f"{name}_NUM_THREADS": str(threads)
            for name in ("OMP", "MKL", "OPENBLAS")
        },
    }


def cpu():
    """Name of the processor."""
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()
