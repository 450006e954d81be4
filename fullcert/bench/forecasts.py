"""Forecasts of trainings on the networks whose steps are measured: how long they take, beside what was said before."""

from dataclasses import replace

import torch

import boundflow as bf
from fullcert.bench import memory
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import clock_of, wait
from fullcert.bench.steps import EPSILON, RATE, batch_of, network, use_threads_of
from fullcert.experiment import forecasting
from fullcert.experiment.trial_trainings import Training

# widths, samples, batch, steps, and what the recipe has besides
NETWORKS: dict[str, tuple[tuple[int, ...], int, int, int, dict[str, object]]] = {
    "interval-2-20-1": ((2, 20, 1), 1000, 100, 300, {"domain": "interval"}),
    "interval-784-10-10-1": ((784, 10, 10, 1), 1000, 100, 200, {"domain": "interval"}),
    "interval-784-512-512-1": ((784, 512, 512, 1), 1000, 250, 48, {"domain": "interval"}),
    "zonotope-2-20-1": ((2, 20, 1), 1000, 100, 100, {"domain": "zonotope"}),
}


def trainings(device: torch.device) -> dict[str, Training]:
    """Of every network, and the linear ones whose memory is measured."""
    found = {}
    for name, (widths, samples, batch, steps, fields) in NETWORKS.items():
        recipe = bf.Recipe(
            loss="bce",
            optimizer_options={"lr": RATE},
            batch_size=batch,
            epochs=-(-steps * batch // samples),
            device=device,
            **fields,  # type: ignore[arg-type]
        )
        data = batch_of(widths, samples, device)
        found[name] = Training(network(widths).to(device), data, recipe, bf.threats.Linf(EPSILON))
    for name, task in memory.LINEAR.items():
        training = task()
        found[name] = replace(training, recipe=training.recipe.but(epochs=4, device=device))
    return found


def forecasts(device: torch.device) -> Measured:
    clock, rows, worst, total = clock_of(device), {}, 1.0, 0.0
    for name, training in trainings(device).items():
        if name in NETWORKS and device.type == "cpu":
            use_threads_of(training.recipe, NETWORKS[name][0], training.size)
        told = forecasting.of(training, clock)
        started = clock()
        training.certify(progress=False)
        wait(device)
        took = clock() - started
        rows[name] = {
            "training_milliseconds": 1000 * took,
            "forecast_milliseconds": None if told is None else 1000 * told,
        }
        total += took
        if told is not None:
            worst = max(worst, told / took, took / told)
    return Measured(1000 * total, details={"factor": worst, "trainings": rows})


TITLE = "trainings on the networks of step and memory cases, beside their forecasts"
case("forecasts-cpu", TITLE)(forecasts)
case("forecasts-gpu", TITLE, device="cuda")(forecasts)
