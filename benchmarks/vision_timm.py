"""The worker of `benchmarks.vision` for timm, in an environment of its own.

It imports PyTorch and timm only.
"""

import argparse
import importlib.metadata
import time

from benchmarks.protocol import peak_memory
from benchmarks.protocol import serve
from benchmarks.protocol import timed
from benchmarks.protocol import use_cores

NAMES = {
    "gmlp_tiny_224": "gmlp_ti16_224",
    "gmlp_small_224": "gmlp_s16_224",
    "gmlp_base_224": "gmlp_b16_224",
}
GEMM = 2048


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=list(NAMES), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), required=True)
    arguments = parser.parse_args()
    use_cores(arguments.threads)

    start = time.perf_counter()
    import timm
    import torch

    torch.set_num_threads(arguments.threads)
    imported = time.perf_counter() - start
    start = time.perf_counter()
    model = timm.create_model(
        NAMES[arguments.preset], num_classes=arguments.classes
    )
    built = time.perf_counter() - start
    images = torch.randn(arguments.batch, 3, 224, 224)
    labels = torch.randint(arguments.classes, (arguments.batch,))
    a = torch.randn(GEMM, GEMM)
    if arguments.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    else:
        decayed = [p for p in model.parameters() if p.ndim > 1]
        spared = [p for p in model.parameters() if p.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": 0.05},
                {"params": spared, "weight_decay": 0.0},
            ],
            lr=1e-3,
        )

    def train():
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if arguments.optimizer == "adamw":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    @torch.inference_mode()
    def infer():
        model.eval()
        model(images).numpy()

    serve(
        {
            "start": lambda: {
                "import": imported,
                "build": built,
                "parameters": sum(p.numel() for p in model.parameters()),
                "versions": {
                    name: importlib.metadata.version(name)
                    for name in ("timm", "torch")
                },
            },
            "infer": timed(infer),
            "train": timed(train),
            "gemm": timed(lambda: a @ a),
            "memory": peak_memory,
        }
    )


if __name__ == "__main__":
    main()
