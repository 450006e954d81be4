"""How much slower is a training step on sets than a plain PyTorch step?

Times steps of the same network, batch, loss (BCE) and optimizer (SGD), taking turns within one run so that all see the
same machine. ``compiled`` are the steps of `bf.certify` on intervals with ``compile=True``; compiling is timed apart.
The ratio is of the best times, which noise can only raise. Needs torch and numpy alone.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.prepared import Prepared
from boundflow.training import _Run

EPSILON = 1e-6  # small, so that no bound blows up while the clock runs: the time does not depend on it


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    domains = ("interval", "zonotope") if arguments.domain == "both" else (arguments.domain,)
    steppers = {domain: stepper(domain, arguments) for domain in ("plain", *domains)}
    times: dict[str, list[float]] = {domain: [] for domain in steppers}
    for _ in range(arguments.repeats):
        for domain, step in steppers.items():
            times[domain].append(milliseconds(step, arguments.steps))
    rows = {domain: summary(values, times["plain"]) for domain, values in times.items()}

    print(f"{shape(arguments)}, batch {arguments.batch}, {arguments.dtype}, {arguments.threads} threads")
    print(f"{'step':10}{'best ms':>10}{'median ms':>11}{'ratio':>8}")
    for domain, row in rows.items():
        print(f"{domain:10}{row['best_ms']:10.3f}{row['median_ms']:11.3f}{row['ratio']:8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"network": shape(arguments), "rows": rows}, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=int, default=2)
    parser.add_argument("--hidden", type=widths, default=[20], help="widths of the hidden layers, such as 20 or 16,16")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--domain", choices=["interval", "compiled", "zonotope", "both"], default="both")
    parser.add_argument("--order", type=int, default=20, help="order of the zonotopes")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=20, help="steps timed together")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the table to this file")
    return parser.parse_args()


def widths(text: str) -> list[int]:
    return [int(width) for width in text.split(",")]


def stepper(domain: str, arguments: argparse.Namespace) -> Callable[[], object]:
    """One training step, ready to be called, warmed up."""
    torch.manual_seed(0)
    kind = {"dtype": getattr(torch, arguments.dtype), "device": arguments.device}
    inputs = torch.randn(arguments.batch, arguments.features, **kind)
    targets = torch.randint(0, 2, (arguments.batch, 1)).to(**kind)
    index = torch.arange(arguments.batch, device=arguments.device)
    model = network(arguments).to(**kind)
    if domain == "compiled":
        return compiled_step(model, inputs, targets, index)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    lift = lift_batch(domain, model, optimizer, arguments.order)

    def step() -> None:
        x, y = lift(inputs, targets, index)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    return step


def compiled_step(model: nn.Module, inputs: Tensor, targets: Tensor, index: Tensor) -> Callable[[], object]:
    """One compiled step of a certified training, ready to be called."""
    recipe = bf.Recipe(loss="bce", domain="interval", optimizer_options={"lr": 1e-3}, compile=True)
    run = _Run(Prepared(model, (inputs, targets), bf.threats.Linf(EPSILON), recipe))
    started = time.perf_counter()
    for number in range(3):
        run._next(index, number)
    print(f"compiled in {time.perf_counter() - started:.1f} s")
    return lambda: run._next(index, 3)


def lift_batch(
    domain: str, model: nn.Module, optimizer: torch.optim.Optimizer, order: int
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Lift the model, and say how a batch is lifted."""
    if domain == "plain":
        return lambda x, y, index: (x, y)
    if domain == "interval":
        bf.lift(model)
        return lambda x, y, index: (bf.ball(x, EPSILON), y)
    symbols = bf.Symbols(bf.threats.Linf(EPSILON), order=order)
    bf.lift(model, symbols)
    symbols.attach(optimizer)
    return symbols.lift


def network(arguments: argparse.Namespace) -> nn.Module:
    """A ReLU network with one output."""
    sizes = [arguments.features, *arguments.hidden, 1]
    layers: list[nn.Module] = []
    for inward, outward in itertools.pairwise(sizes):
        layers += [nn.Linear(inward, outward), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def milliseconds(step: Callable[[], object], steps: int) -> float:
    """The mean time of a few steps."""
    synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return 1000 * (time.perf_counter() - started) / steps


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def summary(values: list[float], plain: list[float]) -> dict[str, float]:
    return {
        "best_ms": min(values),
        "median_ms": statistics.median(values),
        "ratio": min(values) / min(plain),
    }


def shape(arguments: argparse.Namespace) -> str:
    return "-".join(map(str, [arguments.features, *arguments.hidden, 1]))


if __name__ == "__main__":
    main()
