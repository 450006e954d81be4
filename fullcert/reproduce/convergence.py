"""Does certified training converge (Section 4)? Logistic regression on Two-Moons, all samples at once.

With Theta_t the set of parameters after t steps, theta* the optimum of the observed data and G_t the set of gradients,

    h_t = |Theta_t - theta*|^2,     h_{t+1} - h_t = -2 lr (Theta_t - theta*) G_t  +  lr^2 G_t^2

The first term is negative as long as the optimum lies outside the set; the second falls with the learning rate. As
intervals the set can only grow, r(Theta - lr G) = r(Theta) + lr r(G), so it swallows the optimum and the first term
loses its sign. As zonotopes Theta and lr G subtract symbol by symbol, and a set of starting points shrinks as gradient
descent contracts. `start` is the radius of the set of initial parameters around zero; `ridge` adds half of it times
|theta|^2 to the loss, so that gradient descent contracts in every direction.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from fullcert.data.datasets import load
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, LR, SEED = 60, 1.0, 10123310
WIDE = 1e6  # where a set is void for all purposes


def optimum(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """The parameters at which the gradient of the mean loss is zero, by Newton's method."""
    inputs = torch.cat([x, torch.ones(len(x), 1).to(x)], 1)
    theta = torch.zeros(inputs.shape[1]).to(x)
    for _ in range(30):
        share = torch.sigmoid(inputs @ theta)
        curvature = (inputs * (share * (1 - share)).unsqueeze(1)).T @ inputs / len(x) + ridge * torch.eye(3).to(x)
        theta = theta - torch.linalg.solve(curvature, inputs.T @ (share - y.squeeze(1)) / len(x) + ridge * theta)
    return theta


def widened(model: nn.Linear, optimizer: torch.optim.Optimizer, radius: float) -> None:
    """Every initial parameter may lie this far from zero; a step of length zero turns the radii into rows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(bf.ball(torch.zeros(parameter.shape, dtype=parameter.dtype), radius))
            parameter.grad = torch.zeros_like(parameter)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    optimizer.param_groups[0]["lr"] = LR


def vector(tensors: list[Any]) -> Any:
    """Weights and bias as one set."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def follow(
    domain: str, epsilon: float, start: float, ridge: float, steps: int, seed: int, device: torch.device
) -> Outcome:
    """Train on sets, and write down what the proof speaks of after every step."""
    split = load("two-moons", Path("."), seed).train
    x = torch.tensor(split.inputs, device=device)
    y = torch.tensor(split.labels, dtype=x.dtype, device=device).unsqueeze(1)
    best = optimum(x, y, ridge)
    model = nn.Linear(2, 1).double().to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    symbols = bf.Symbols(bf.threats.Linf(epsilon), order=20) if domain == "zonotope" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, weight_decay=ridge)
    bf.lift(model, symbols)
    if symbols is not None:
        symbols.attach(optimizer)
    if start:
        widened(model, optimizer, start)
    curves: dict[str, list[Any]] = {"radius": [], "distance": [], "first": [], "second": []}
    entered: int | None = None
    index = torch.arange(len(x), device=device)
    for step in range(steps + 1):
        theta = vector(list(model.parameters()))
        radius = (0.5 * (theta.upper - theta.lower)).max().item()
        if not radius < WIDE:
            break
        if entered is None and bool(theta.contains(best).all()):
            entered = step
        optimizer.zero_grad()
        inputs = bf.ball(x, epsilon) if symbols is None else symbols.lift(x, y, index)[0]
        F.binary_cross_entropy_with_logits(model(inputs), y).backward()
        gradient = vector([parameter.grad for parameter in model.parameters()]) + ridge * theta
        away = theta - best
        noted = {
            "radius": radius,
            "distance": ends((away * away).sum()),
            "first": ends(-2 * LR * (away * gradient).sum()),
            "second": ends(LR**2 * (gradient * gradient).sum()),
        }
        for name, value in noted.items():
            curves[name].append(value)
        optimizer.step()
    return Outcome(curves["radius"][-1], None, {**curves, "entered": entered, "optimum": best.tolist()})


def ends(value: Any) -> list[float]:
    """The lower and the upper bound of one number."""
    return [value.lower.item(), value.upper.item()]


def draw(rows: list[dict[str, Any]], figure: "Figure") -> None:
    """The radius, the upper bound of h, and the upper bounds of both terms, by step."""
    panels = figure.subplots(1, 3)
    colours = {"interval": "#C05A00", "zonotope": "#0072B2"}
    for row in rows:
        details = row["details"][0]
        style = {"color": colours[row["domain"]], "linestyle": "--" if row["setting"]["start"] else "-"}
        panels[0].plot(details["radius"], label=f"{row['domain']}, start {row['setting']['start']:g}", **style)
        panels[1].plot([upper for _, upper in details["distance"]], **style)
        if not row["setting"]["start"]:
            panels[2].plot([upper for _, upper in details["first"]], **style)
            panels[2].plot([upper for _, upper in details["second"]], **{**style, "linestyle": ":"})
        if details["entered"] is not None:
            panels[1].axvline(details["entered"], linewidth=0.6, **style)
    titles = ("radius of a parameter", "largest h, optimum enters", "largest of both terms")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step")
    for axes in panels[:2]:
        axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)


@experiment(
    "convergence",
    title="Logistic regression on Two-Moons: how far the set of parameters is from the optimum",
    source="FullCert, Section 4",
    differs="The paper proves and prints no number; the value is the largest radius of a parameter after the last step "
    "that has finite bounds, and the curves are in the JSON.",
    value="radius of a parameter",
    draw=draw,
)
def convergence(scale: Scale) -> list[Case]:
    steps = 10 if scale.quick else STEPS
    return [
        Case(
            {"epsilon": epsilon, "start": start, "ridge": ridge},
            domain,
            "paper",
            partial(follow, domain, epsilon, start, ridge, steps),
            seeds=(SEED,),
            fixed={"steps": steps},
        )
        for epsilon, start, ridge in ((1e-2, 0.0, 0.0), (1e-3, 0.1, 0.1))
        for domain in ("interval", "zonotope")
    ]
