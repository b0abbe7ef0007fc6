"""What experts cost: more of them, their assignment, a token of text.

    python -m benchmarks.experts
    python -m benchmarks.experts --backends jax --questions growth

Four questions, each with its sides in processes of their own that take turns,
one step each, on the same number of cores:

    growth       a layer of token experts with 4, 16 and 64 of them: forward
                 and gradients in training, the optimiser's update apart;
                 beside KerasHub's Mixtral block, which runs every expert on
                 every token
    inference    the same layer where nothing is dropped
    assignment   balanced assignment of tokens to experts
    writing      one more token by the cache, beside the whole text again

The output is the table of `docs/benchmarks.md`. Float32, CPU, Linux only.
"""

import statistics

from benchmarks import experts_worker
from benchmarks import questions
from benchmarks.questions import TITLES

QUESTIONS = {
    "growth": (
        *(f"switch-{e}-forward" for e in (4, 16, 64)),
        *(f"mixtral-{e}-forward" for e in (4, 16, 64)),
        *(f"switch-{e}-backward" for e in (4, 64)),
        *(f"mixtral-{e}-backward" for e in (4, 64)),
        *("update-4", "update-64"),
    ),
    "inference": tuple(f"switch-{e}-inference" for e in (4, 16, 64)),
    "assignment": ("assignment",),
    "writing": (
        *("step", "step-early", "whole", "nano-step", "nano-whole"),
        *(f"step-{n}" for n in experts_worker.LENGTHS),
    ),
}


def main():
    arguments = questions.parse(__doc__, QUESTIONS, repeats=15)
    tables = {
        "growth": print_growth,
        "inference": print_inference,
        "assignment": print_assignment,
        "writing": print_writing,
    }
    results = questions.ask("experts", QUESTIONS, arguments)
    for question, found in results.items():
        tables[question]({b: medians(sides) for b, sides in found.items()})


def medians(sides):
    """Milliseconds by side."""
    return {
        side: 1000 * statistics.median(result["seconds"])
        for side, result in sides.items()
    }


def print_growth(results):
    print(
        "| training | forward, E = 4, 16, 64, ms | 64 / 4 "
        "| with gradients, E = 4, 64, ms | 64 / 4 "
        "| AdamW's update, E = 4, 64, ms |"
    )
    print("|:--|--:|--:|--:|--:|--:|")
    for backend, ms in results.items():
        for kind, title in (("switch", "ours"), ("mixtral", "Mixtral's")):
            forward = [ms[f"{kind}-{e}-forward"] for e in (4, 16, 64)]
            backward = [ms[f"{kind}-{e}-backward"] for e in (4, 64)]
            update = ""
            if kind == "switch":
                update = f"{ms['update-4']:.1f}, {ms['update-64']:.1f}"
            print(
                f"| {TITLES[backend]}, {title} "
                f"| {', '.join(f'{x:.1f}' for x in forward)} "
                f"| {forward[-1] / forward[0]:.2f} "
                f"| {', '.join(f'{x:.1f}' for x in backward)} "
                f"| {backward[-1] / backward[0]:.2f} | {update} |"
            )
    print(
        f"\n{experts_worker.TOKENS:,} tokens of width {experts_worker.WIDTH}, "
        f"{experts_worker.INNER} inside an expert (Mixtral's three matrices "
        "have as many weights), one expert a token; ours with the capacity "
        "factor 1.25.\n"
    )


def print_inference(results):
    print("| inference, nothing dropped | E = 4, 16, 64, ms | 64 / 4 |")
    print("|:--|--:|--:|")
    for backend, ms in results.items():
        times = [ms[f"switch-{e}-inference"] for e in (4, 16, 64)]
        print(
            f"| {TITLES[backend]} | {', '.join(f'{x:.1f}' for x in times)} "
            f"| {times[-1] / times[0]:.2f} |"
        )
    print()


def print_assignment(results):
    print("| balanced assignment | ms |")
    print("|:--|--:|")
    for backend, ms in results.items():
        print(f"| {TITLES[backend]} | {ms['assignment']:.1f} |")
    print(
        f"\n{experts_worker.ASSIGNED:,} tokens to {experts_worker.EXPERTS} "
        "experts; on TensorFlow without XLA.\n"
    )


def print_writing(results):
    print(
        "| writing | a token by the cache, ms | the same at place 64, ms "
        "| the whole text again, ms | times faster "
        "| nano: token, whole, ms | times faster |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|")
    for backend, ms in results.items():
        print(
            f"| {TITLES[backend]} | {ms['step']:.1f} | {ms['step-early']:.1f} "
            f"| {ms['whole']:.0f} | {ms['whole'] / ms['step']:.0f} "
            f"| {ms['nano-step']:.1f}, {ms['nano-whole']:.1f} "
            f"| {ms['nano-whole'] / ms['nano-step']:.1f} |"
        )
    sizes = experts_worker.WRITER
    print(
        f"\nWidth {sizes['hidden_dim']}, 12 blocks, 3 of them sparse, "
        f"n = {sizes['sequence_length']}, batch 1; nano: width "
        f"{experts_worker.NANO['hidden_dim']}, 4 blocks, n = "
        f"{experts_worker.NANO['sequence_length']}.\n"
    )
    lengths = sorted({*experts_worker.LENGTHS, sizes["sequence_length"]})
    print(f"| a token by the cache, n = {', '.join(map(str, lengths))} | ms |")
    print("|:--|--:|")
    for backend, ms in results.items():
        # The usual length has the side without a number.
        times = [ms.get(f"step-{n}", ms["step"]) for n in lengths]
        shown = ", ".join(f"{time:.1f}" for time in times)
        print(f"| {TITLES[backend]} | {shown} |")
    print()


if __name__ == "__main__":
    main()
