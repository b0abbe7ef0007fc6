"""How fast an image model trains and infers, beside its alternatives.

    python -m benchmarks.vision
    python -m benchmarks.vision --timm-python ~/timm/bin/python
    python -m benchmarks.vision --sides torch jax --repeats 21

Every side is a process of its own with the same number of cores: ours on the
three backends, the same model by hand in plain JAX, and timm's in the
environment that `--timm-python` names. They take turns, one step each, while
all others sleep, so that whatever else the machine does hits all alike. The
training step is the same for all: forward, cross-entropy over 1000 classes,
backward, gradients clipped by their global norm, AdamW; nothing is dropped.

The output is the table of `docs/benchmarks.md`. Float32, CPU, Linux only.
"""

import argparse
import datetime
import os
import pathlib
import platform
import shlex
import statistics
import sys
import tempfile

from benchmarks.protocol import Worker
from benchmarks.protocol import cpu
from benchmarks.protocol import quiet_or_exit
from benchmarks.protocol import worker_environment

OURS = ("torch", "tensorflow", "jax")
SIDES = (*OURS, "jax-by-hand", "timm")
TITLES = {
    "torch": "ours, PyTorch",
    "tensorflow": "ours, TensorFlow",
    "jax": "ours, JAX",
    "jax-by-hand": "by hand, JAX",
    "timm": "timm, PyTorch",
}
CLASSES = 1000
GEMM_FLOPS = 2 * 2048**3


def main():
    arguments = parse()
    before, busy = quiet_or_exit(arguments.anyway)
    sides = [s for s in arguments.sides if s != "timm" or arguments.timm_python]
    with tempfile.TemporaryDirectory() as logs:
        first = {}
        if not arguments.no_first:
            first = {s: first_steps(s, arguments, logs) for s in sides}
        results = measure(sides, arguments, logs)
        images = {} if arguments.no_input else feed(arguments, logs)
    print_environment(arguments, results, before, busy)
    if "timm" in arguments.sides and not arguments.timm_python:
        print("timm is left out: no --timm-python.\n")
    print_speed(results, arguments)
    if first:
        print_first(first)
    if images:
        print_input(images, results, arguments)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="gmlp_small_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--timm-python", help="interpreter that has timm")
    parser.add_argument(
        "--jit",
        choices=("auto", "on", "off"),
        default="auto",
        help="jit_compile of TensorFlow's model",
    )
    parser.add_argument(
        "--no-first", action="store_true", help="leave out first steps"
    )
    parser.add_argument(
        "--no-input", action="store_true", help="leave out the input"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="measure on a busy machine too"
    )
    return parser.parse_args()


def start(side, arguments, logs, optimizer="adamw"):
    """Starts the worker of a side."""
    python, module, extra = sys.executable, "benchmarks.vision_worker", []
    backend = {"jax-by-hand": "jax", "input": "torch"}.get(side, side)
    environment = worker_environment(backend, arguments.threads)
    if side == "timm":
        python, module = arguments.timm_python, "benchmarks.vision_timm"
    elif side in OURS:
        jit = arguments.jit if side == "tensorflow" else "auto"
        extra = ["--side", "model", "--jit", jit]
    else:
        extra = ["--side", "by-hand" if side == "jax-by-hand" else "input"]
    command = [python, "-m", module, *extra]
    for name in ("preset", "batch", "threads"):
        command += [f"--{name}", str(getattr(arguments, name))]
    command += ["--classes", str(CLASSES), "--optimizer", optimizer]
    return Worker(command, environment, pathlib.Path(logs) / f"{side}.log")


def first_steps(side, arguments, logs):
    """Seconds to the first training step, each in a fresh process.

    Returns:
        `{optimizer: {"import": s, "build": s, "step": s, "second": s}}`.
    """
    optimizers = ["sgd", "adamw"]
    if side in OURS:
        optimizers.append("adamw-built")
    found = {}
    for optimizer in optimizers:
        worker = start(side, arguments, logs, optimizer)
        try:
            found[optimizer] = worker.ask("start")
            found[optimizer]["step"] = worker.ask("train")
            found[optimizer]["second"] = worker.ask("train")
        finally:
            worker.close()
    return found


def measure(sides, arguments, logs):
    """All sides in turn, one step of each kind at a time.

    Returns:
        `{side: {"start": {}, "memory": MiB, "train": [s], "infer": [s],
        "gemm": [s]}}`.
    """
    workers, results = {}, {}
    try:
        for side in sides:
            workers[side] = start(side, arguments, logs)
            results[side] = {"start": workers[side].ask("start")}
        kinds = {
            side: ["train", "infer"] + (["gemm"] if "hand" not in side else [])
            for side in sides
        }
        for side in sides:  # compile, and settle
            for kind in 2 * kinds[side]:
                workers[side].ask(kind)
        for side in sides:
            results[side].update({kind: [] for kind in kinds[side]})
        for turn in range(arguments.repeats):
            # Each side is first once: caches and clocks favour no one.
            order = sides[turn % len(sides) :] + sides[: turn % len(sides)]
            for kind in ("train", "infer", "gemm"):
                for side in order:
                    if kind in kinds[side]:
                        results[side][kind].append(workers[side].ask(kind))
        for side in sides:
            results[side]["memory"] = workers[side].ask("memory")
    finally:
        for worker in workers.values():
            worker.close()
    return results


def feed(arguments, logs):
    """Augmented images a second, medians of three passes."""
    worker = start("input", arguments, logs)
    try:
        worker.ask("start")
        return {
            kind: statistics.median(worker.ask(kind) for _ in range(3))
            for kind in ("1 worker", "2 workers")
        }
    finally:
        worker.close()


def print_environment(arguments, results, before, busy):
    versions = {"Python": platform.python_version()}
    for result in results.values():
        for name, version in result["start"]["versions"].items():
            if versions.get(name, version) != version:
                name = f"{name} (timm's)"
            versions[name] = version
    print("```bash\npython -m benchmarks.vision", end=" ")
    shown = list(sys.argv[1:])
    if arguments.timm_python in shown:
        shown[shown.index(arguments.timm_python)] = "TIMM_PYTHON"
    print(shlex.join(shown), end="\n```\n\n")
    print(
        f"{datetime.date.today():%-d %B %Y}; {cpu()}, "
        f"{arguments.threads} threads; float32; "
        f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} "
        f"after; medians of {arguments.repeats} (minima in brackets); "
        + ", ".join(f"{name} {v}" for name, v in versions.items())
        + "."
    )
    if busy:
        print("\n**The machine was busy: ratios are rough, seconds too long.**")
    print()


def print_speed(results, arguments):
    """Steps, ratios, and what they make of the machine's arithmetic."""
    flops = [r["start"].get("flops") for r in results.values()]
    flops = next((f for f in flops if f), None)
    gemm = (
        max(
            (GEMM_FLOPS / statistics.median(r["gemm"]), side)
            for side, r in results.items()
            if "gemm" in r
        )
        if any("gemm" in r for r in results.values())
        else (None, None)
    )
    base = next(iter(results))
    print(
        f"| {arguments.preset}, batch {arguments.batch} | inference, s "
        f"| training step, s | inference / {base} | training / {base} "
        "| GFLOP/s | share of GEMM | GEMM, GFLOP/s | peak memory, MiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for side, r in results.items():
        infer, train = (statistics.median(r[k]) for k in ("infer", "train"))
        cells = [
            TITLES[side],
            f"{infer:.2f} ({min(r['infer']):.2f})",
            f"{train:.2f} ({min(r['train']):.2f})",
            f"{infer / statistics.median(results[base]['infer']):.2f}",
            f"{train / statistics.median(results[base]['train']):.2f}",
        ]
        rates = []
        if flops:
            work = arguments.batch * flops
            rates = [work / infer, 3 * work / train]
        cells.append(" / ".join(f"{x / 1e9:.0f}" for x in rates) or "-")
        shares = [x / gemm[0] for x in rates] if gemm[0] else []
        cells.append(" / ".join(f"{x:.0%}" for x in shares) or "-")
        if "gemm" in r:
            rate = GEMM_FLOPS / statistics.median(r["gemm"]) / 1e9
            cells.append(f"{rate:.0f}")
        else:
            cells.append("-")
        cells.append(f"{r['memory']:.0f}")
        print("| " + " | ".join(cells) + " |")
    print(
        "\nGFLOP/s and shares are of inference / of training. The model's "
        "multiplications and additions are those of "
        "`mlp_mixers.analysis.count_flops`, three times as many in training; "
        "the share is of the fastest side's 2048³ product"
        + (f" ({TITLES[gemm[1]]})" if gemm[1] else "")
        + ". Memory is the process's whole peak, with libraries and "
        "compiler.\n"
    )


def print_first(first):
    """The first step, split into what the model and the optimiser cost."""
    print(
        "| seconds to the first training step | import | build | step, SGD "
        "| step, AdamW | step, AdamW built before | a second step |"
    )
    print("|---|---|---|---|---|---|---|")
    for side, found in first.items():
        adamw = found["adamw"]
        built = found.get("adamw-built")
        cells = [TITLES[side], adamw["import"], adamw["build"]]
        cells += [found["sgd"]["step"], adamw["step"]]
        cells += [built["step"] if built else "-", adamw["second"]]
        texts = [c if isinstance(c, str) else f"{c:.1f}" for c in cells]
        print("| " + " | ".join(texts) + " |")
    print(
        "\nEach in a fresh process; with SGD the step is the model's, with "
        "AdamW (clipped, with decay) the optimiser's is added. *Built before* "
        "includes `model.optimizer.build(model.trainable_variables)`.\n"
    )


def print_input(images, results, arguments):
    rates = {
        side: arguments.batch / statistics.median(r["train"])
        for side, r in results.items()
    }
    fastest = max(rates, key=rates.get)
    print(
        "| input: JPEG 500x375, crop, flip, AutoAugment, mixup and CutMix "
        f"| images/s | per image that {TITLES[fastest]} trains on "
        f"({rates[fastest]:.1f}/s) |"
    )
    print("|---|---|---|")
    for kind, rate in images.items():
        print(f"| {kind} | {rate:.0f} | {rate / rates[fastest]:.1f} |")
    print("\nMeasured alone; in training, both share the cores.")


if __name__ == "__main__":
    main()
