"""How the cost of a step grows: one thing is made larger at a time, and a power law is fitted to the best times.

milliseconds  ~  size ** slope,   by least squares of the logarithms
"""

import numpy as np
import torch

import boundflow as bf
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import seconds, taking_turns
from fullcert.bench.steps import batch_of, bounded_step, next_step, use_threads_of

ROUNDS = 3
WIDTHS, BATCH, ORDER = (10, 20, 1), 100, 10
# what grows -> its sizes, and the network, batch and order at each
GROWTH: dict[str, dict[int, tuple[tuple[int, ...], int, int]]] = {
    "parameters": {12 * h + 1: ((10, h, 1), BATCH, ORDER) for h in (10, 20, 40, 80)},
    "samples": {n: (WIDTHS, n, ORDER) for n in (50, 100, 200, 400)},
    "rows": {order: (WIDTHS, BATCH, order) for order in (5, 10, 20, 40)},
    "classes": {c: ((10, c), BATCH, ORDER) for c in (2, 4, 8, 16)},
    "depth": {d: ((10, *[10] * d, 1), BATCH, ORDER) for d in (1, 2, 4)},
}


def slope(sizes: list[float], values: list[float]) -> float:
    """The exponent of the power law."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


@case("growth", "how the cost on zonotopes grows with parameters, samples, rows, classes, depth and steps")
def growth(device: torch.device) -> Measured:
    use_threads_of(bf.Recipe(domain="zonotope", order=ORDER), WIDTHS, BATCH)
    found: dict[str, object] = {}
    for name, sizes in GROWTH.items():
        works = {}
        for size, (widths, samples, order) in sizes.items():
            recipe = bf.Recipe(domain="zonotope", order=order, loss="ce" if widths[-1] > 1 else "bce")
            works[str(size)] = bounded_step(recipe, widths, *batch_of(widths, samples, device))[0]
        best = taking_turns(works, device, ROUNDS)
        found[name] = {"milliseconds": best, "slope": slope([float(size) for size in sizes], list(best.values()))}
    found["steps"] = _steps(device)
    return Measured(None, details=found)


def _steps(device: torch.device) -> dict[str, object]:
    """All steps of a training, from its first: the early ones have fewer error rows, and are cheaper."""
    counts, x, y = (4, 8, 16, 32), *batch_of(WIDTHS, BATCH, device)
    times = {}
    for count in counts:
        recipe = bf.Recipe(domain="zonotope", order=ORDER, loss="bce", epochs=count)
        trainings = [next_step(recipe, WIDTHS, x, y) for _ in range(ROUNDS)]
        times[str(count)] = 1000 * min(count * seconds(work, device, count) for work in trainings)
    return {"milliseconds": times, "slope": slope([float(count) for count in counts], list(times.values()))}
