"""The choices that fix one training run: its data, threat, network, optimizer and number of steps.

A certificate speaks of the training algorithm with all of these fixed. Each field is one flag of the command,
with its default and help text here and nowhere else.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from fullcert.mistakes import Mistake


def option(default: Any, help: str, **flag: Any) -> Any:
    """A field with its help text; `flag` holds further arguments for the command line."""
    return field(default=default, metadata={"help": help, **flag})


@dataclass(frozen=True)
class Options:
    """Everything that decides the outcome of a run. Numbers are checked here, names where their tables are."""

    dataset: str = option("two-moons", "What to train on.")
    data_dir: str = option("data", "Where datasets kept on disk are.", envvar="BOUNDFLOW_DATA")
    epsilon: float = option(1e-3, "Every training feature may have moved by this much.")
    test_epsilon: float = option(
        None, "Every test feature may have moved by this much.", show_default="same as --epsilon"
    )
    domain: str = option("zonotope", "How sets are represented: interval or zonotope.")
    model: str = option("mlp", "The kind of network.")
    hidden: str = option("16", "Widths of the hidden layers, such as 20 or 16,16.")
    activation: str = option("tanh", "What follows each hidden layer: tanh, relu, sigmoid and others.")
    init_scale: float = option(8.0, "The first layer's initial weights and biases are multiplied by this.")
    loss: str = option("bce", "What is minimised: bce, ce, hinge or mse.")
    optimizer: str = option("sgd", "How it is minimised: sgd, adam, adamw or rmsprop.")
    lr: float = option(0.3, "Learning rate.")
    momentum: float = option(0.9, "Momentum of sgd and rmsprop; the others have none.")
    weight_decay: float = option(0.0, "Weight decay.")
    epochs: int = option(4, "How often every training sample is used.")
    batch_size: int = option(100, "Samples in a step; 0 takes all of them at once.")
    seed: int = option(0, "Fixes the data drawn, the initial weights and the order of the batches.")
    order: int = option(5, "Error rows a zonotope keeps for each number in parameters and optimizer state.")
    device: str = option("cpu", "Where tensors live, such as cpu or cuda.")
    dtype: str = option("float64", "Precision of the run: float32 or float64.")

    def __post_init__(self) -> None:
        if self.test_epsilon is None:
            object.__setattr__(self, "test_epsilon", self.epsilon)
        self.within("epsilon", 0, inf)
        self.within("test_epsilon", 0, inf)
        self.within("lr", 0, inf)
        self.within("init_scale", 0, inf)
        self.within("momentum", 0, 1)
        self.within("weight_decay", 0, inf)
        self.within("epochs", 1, inf)
        self.within("batch_size", 0, inf)
        self.within("order", 1, inf)
        self.within("seed", 0, 2**32)
        parse_widths(self.hidden)

    def within(self, name: str, least: float, limit: float) -> None:
        """Refuse a number outside [least, limit); NaN is outside of everything."""
        value = getattr(self, name)
        if not least <= value < limit:
            below = "" if limit == inf else f" and below {limit:g}"
            raise Mistake(f"{flag_of(name)} must be a finite number of at least {least:g}{below}, not {value:g}")


def parse_widths(hidden: str) -> tuple[int, ...]:
    """The widths of the hidden layers: "16,8" is (16, 8)."""
    if not all(width.strip().isdecimal() and int(width) > 0 for width in hidden.split(",")):
        raise Mistake(f"--hidden must be positive widths such as 20 or 16,16, not {hidden!r}")
    return tuple(int(width) for width in hidden.split(","))


def flag_of(name: str) -> str:
    """The flag that sets a field: test_epsilon is set by --test-epsilon."""
    return "--" + name.replace("_", "-")
