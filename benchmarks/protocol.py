"""How a benchmark talks to its workers: one line of JSON, one back.

Only the standard library at first, since a worker may live in an environment
that has neither Keras nor this package.
"""

import contextlib
import datetime
import json
import os
import platform
import shlex
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


def take_turns(module, sides, backend, threads, repeats, logs):
    """All sides of a question, each in a process, one step each in turn.

    Args:
        module: Name of the worker's module, which takes `--side` and
            `--threads`, and answers `start`, `step` and `memory`.
        sides: Names of the sides.
        backend: Keras's backend.
        threads: Threads of each.
        repeats: Steps that count.
        logs: Folder for what the workers print.

    Returns:
        `{side: {"start": {}, "seconds": [s], "memory": MiB}}`.
    """
    workers, results = {}, {}
    try:
        for side in sides:
            workers[side] = Worker(
                [
                    *(sys.executable, "-m", module),
                    *("--side", side, "--threads", str(threads)),
                ],
                worker_environment(backend, threads),
                os.path.join(logs, f"{backend}-{side}.log"),
            )
            results[side] = {"start": workers[side].ask("start")}
        for side in sides:  # compile, and settle
            for _ in range(3):
                workers[side].ask("step")
            results[side]["seconds"] = []
        for turn in range(repeats):
            first = turn % len(sides)
            for side in (*sides[first:], *sides[:first]):
                results[side]["seconds"].append(workers[side].ask("step"))
        for side in sides:
            results[side]["memory"] = workers[side].ask("memory")
    finally:
        for worker in workers.values():
            worker.close()
    return results


def print_environment(name, arguments, results, before, busy):
    """Prints the command, the date, the machine and all versions.

    Args:
        name: Of the benchmark's module.
        arguments: With `threads` and `repeats`.
        results: Those of `take_turns`.
        before: Load average before.
        busy: Whether that was too much.
    """
    versions = {}
    for sides in results:
        for result in sides.values():
            versions.update(result["start"]["versions"])
    command = shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])
    print(f"```bash\n{command}\n```\n")
    print(
        f"{datetime.date.today():%-d %B %Y}; {cpu()}, {arguments.threads} "
        f"threads; float32; load average {before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; medians of {arguments.repeats}; "
        + ", ".join(f"{name} {v}" for name, v in versions.items())
        + ".\n"
    )
    if busy:
        print("**The machine was busy: ratios are rough, seconds too long.**\n")


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
