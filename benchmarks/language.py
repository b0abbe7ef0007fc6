"""What a language model costs: its head, its Toeplitz matrices, its blocks.

    python -m benchmarks.language
    python -m benchmarks.language --backends jax --repeats 15

Four questions, each with its sides in processes of their own that take turns,
one step each, on the same number of cores:

    head       a training step with logits at the masked positions only, and
               with logits everywhere: seconds and peak memory
    toeplitz   making W of 2n - 1 values beside keeping it, and a block of
               aMLP-base with W multiplied, kept dense, or convolved by FFT
    bert       tokens a second of aMLP-base blocks and of KerasHub's BERT with
               as many parameters; beside what their FLOPs would say
    input      rows masked a second, beside what the model takes

The output is the table of `docs/benchmarks.md`. Float32, CPU, Linux only.
"""

import statistics

from benchmarks import language_worker
from benchmarks import questions
from benchmarks.questions import TITLES

QUESTIONS = {
    "head": ("masked-head", "full-head"),
    "toeplitz": (
        *("toeplitz-matrix", "kept-matrix"),
        *("toeplitz-block", "dense-block", "fft-block"),
    ),
    "bert": ("amlp", "bert"),
    "input": ("masking",),
}


def main():
    arguments = questions.parse(__doc__, QUESTIONS, repeats=9)
    tables = {
        "head": print_head,
        "toeplitz": print_toeplitz,
        "bert": print_bert,
        "input": print_input,
    }
    results = questions.ask(
        "language", QUESTIONS, arguments, without_backend=("input",)
    )
    for question, found in results.items():
        tables[question](found, results)


def median(result):
    return statistics.median(result["seconds"])


def print_head(results, _):
    print(
        "| head | step, masked positions, s | step, everywhere, s "
        "| peak memory, masked, MiB | everywhere, MiB | saved, GiB |"
    )
    print("|:--|--:|--:|--:|--:|--:|")
    for backend, sides in results.items():
        masked, full = sides["masked-head"], sides["full-head"]
        saved = (full["memory"] - masked["memory"]) / 1024
        print(
            f"| {TITLES[backend]} | {median(masked):.2f} | {median(full):.2f} "
            f"| {masked['memory']:.0f} | {full['memory']:.0f} | {saved:.2f} |"
        )
    print(
        f"\nTwo aMLP-base blocks, V = {language_worker.VOCABULARY:,}, "
        f"n = {language_worker.LENGTH}, batch {language_worker.BATCH}, "
        f"{language_worker.MASKED} masked positions a row, AdamW. Memory is "
        "the whole process's peak.\n"
    )


def print_toeplitz(results, _):
    print(
        "| W | of 2n - 1 values, ms | kept, ms | block, W multiplied, ms "
        "| making W, share of the block | block, W kept dense, ms "
        "| block, by FFT, ms |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|")
    for backend, sides in results.items():
        made, kept, block, dense, fft = (
            1000 * median(sides[side]) for side in QUESTIONS["toeplitz"]
        )
        print(
            f"| {TITLES[backend]} | {made:.2f} | {kept:.2f} | {block:.0f} "
            f"| {(made - kept) / block:.1%} | {dense:.0f} | {fft:.0f} |"
        )
    print(
        "\nTraining steps. The first two hold one n×n matrix and multiply it "
        "once, element by element; their difference is what making it costs, "
        "forward and backward.\n"
    )


def print_bert(results, _):
    print(
        "| blocks | aMLP, tokens/s | BERT, tokens/s | time, aMLP / BERT "
        "| FLOPs, aMLP / BERT | time / FLOPs |"
    )
    print("|:--|--:|--:|--:|--:|--:|")
    tokens = language_worker.BATCH * language_worker.LENGTH
    for backend, sides in results.items():
        amlp, bert = sides["amlp"], sides["bert"]
        time = median(amlp) / median(bert)
        flops = amlp["start"]["macs"] / bert["start"]["macs"]
        print(
            f"| {TITLES[backend]} | {tokens / median(amlp):,.0f} "
            f"| {tokens / median(bert):,.0f} | {time:.2f} | {flops:.2f} "
            f"| {time / flops:.2f} |"
        )
    sides = next(iter(results.values()))
    sizes = [sides[s]["start"]["without_embedding"] for s in ("amlp", "bert")]
    print(
        f"\n{language_worker.AMLP_LAYERS} blocks of aMLP-base "
        f"({sizes[0]:,} parameters without the embedding) and "
        f"{language_worker.BERT_LAYERS} layers of BERT of width "
        f"{language_worker.BERT_DIM} ({sizes[1]:,}), both with the same head "
        "at the masked positions. FLOPs by `count_flops`.\n"
    )


def print_input(results, everything):
    rows = 64 * language_worker.BATCH / median(results["any"]["masking"])
    rates = {
        backend: language_worker.BATCH / median(sides["amlp"])
        for backend, sides in everything.get("bert", {}).items()
    }
    fastest = max(rates.values(), default=None)
    print("| input | rows masked/s | tokens/s | times what the model takes |")
    print("|:--|--:|--:|--:|")
    times = f"{rows / fastest:,.0f}" if fastest else "-"
    print(
        f"| one thread | {rows:,.0f} | {rows * language_worker.LENGTH:,.0f} "
        f"| {times} |\n"
    )


if __name__ == "__main__":
    main()
