"""The choices that fix one training run: its data, threat, network, optimizer and number of steps.

A certificate speaks of the training algorithm with all of these fixed. Each field is one flag of the command and one
key of a TOML file, with its help text here and nowhere else. The kind of data decides the default network, and data,
network, domain and threat decide how it is trained: `recipes.py` has the rules. What the file says goes before that,
and what the command line says before the file.
"""

import json
import re
import reprlib
import shlex
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from fullcert.experiment import recipes
from fullcert.system import unpacking
from fullcert.system.mistakes import Mistake

BY_RULE = "by rule"  # what --help shows of defaults that are chosen by rule

DATA, THREAT, NETWORK, TRAINING = "Data", "Threat: what an attacker could have done", "Network", "Training"


def option(default: Any, help: str, panel: str, **flag: Any) -> Any:
    """A field with its help text; `flag` holds further arguments for the command line."""
    return field(default=default, metadata={"help": help, "rich_help_panel": panel, **flag})


@dataclass(frozen=True)
class Options:
    """Everything that decides the outcome of a run. Numbers are checked here, names where their tables are."""

    dataset: str = option("two-moons", "What to train on: see `fullcert datasets list`.", DATA)
    data_dir: str = option("data", "Where datasets kept on disk are.", DATA, envvar="BOUNDFLOW_DATA")
    data: str | None = option(None, "A table of your own instead: CSV, Parquet or NPZ.", DATA)
    target: str | None = option(None, "The column of the table that is predicted.", DATA)
    test_data: str | None = option(
        None, "A table to test on.", DATA, show_default="a fifth of --data, drawn by the seed"
    )
    ignore: tuple[str, ...] = option((), "A column to leave out. Can be repeated.", DATA, metavar="COLUMN")
    categorical: tuple[str, ...] = option(
        (), "Its numbers are names of categories. Can be repeated.", DATA, metavar="COLUMN"
    )
    scale: tuple[str, ...] = option(
        (), "CENTER:SCALE of a column, fixed beforehand. Can be repeated.", DATA, metavar="COLUMN=..."
    )
    id: str | None = option(None, "A column that names each row: answers carry it, and it is no input.", DATA)
    dates: tuple[str, ...] = option(
        (),
        "COLUMN, or COLUMN=dmy or mdy for the order: dates become days since 1970-01-01. Can be repeated.",
        DATA,
        metavar="COLUMN",
    )
    missing_mark: tuple[str, ...] = option(
        (), "A word that stands for a missing value, such as ?. Can be repeated.", DATA, metavar="WORD"
    )
    valid: tuple[str, ...] = option(
        (),
        "COLUMN=LOW:HIGH: what is no number from LOW to HIGH is read as missing, and no number is moved out of it. Can "
        "be repeated.",
        DATA,
        metavar="COLUMN=...",
    )
    impute: tuple[str, ...] = option(
        (),
        "COLUMN=median, mean, mode or a value: what stands in for a missing one. Can be repeated.",
        DATA,
        metavar="COLUMN=...",
    )
    ignore_case: tuple[str, ...] = option(
        (), "Its categories that differ by case or blanks alone are one. Can be repeated.", DATA, metavar="COLUMN"
    )
    drop_unlabelled: bool = option(False, "Leave out rows without a value in the target column.", DATA)
    encoding: str | None = option(
        None, "Encoding of the table where it is not UTF-8, such as windows-1252.", DATA, show_default="UTF-8"
    )
    separator: str | None = option(
        None, "What stands between cells: , ; | or tab.", DATA, show_default="as the header has it"
    )
    decimal: str = option(".", "The decimal sign of the table: . or ,", DATA)
    thousands: str | None = option(
        None,
        "What stands between thousands in the table: , . ' space or none.",
        DATA,
        show_default="none, and a column that could be read so is refused",
    )
    regression: bool = option(False, "Predict a number instead of a class.", DATA)
    trusted: str | None = option(None, "A table of clean data: plain training on it comes first.", DATA)
    trusted_epochs: int = option(20, "How often every trusted sample is used.", DATA)

    epsilon: float = option(
        None,
        "Every training feature may have moved by this much.",
        THREAT,
        show_default="0.001, or 0 with another threat",
    )
    tolerance: tuple[str, ...] = option(
        (),
        "COLUMN=AMOUNT or COLUMN=5%: how far values may be off. Can be repeated.",
        THREAT,
        metavar="COLUMN=...",
    )
    any_category: tuple[str, ...] = option(
        (), "A column whose category may be any other. Can be repeated.", THREAT, metavar="COLUMN"
    )
    missing: tuple[str, ...] = option(
        (),
        "COLUMN=LOW:HIGH, or COLUMN for its observed range, or for any of its categories: missing values may be "
        "anything there.",
        THREAT,
        metavar="COLUMN=...",
    )
    at_most: int | None = option(None, "At most this many samples have changed features.", THREAT, show_default="all")
    flip_labels: int = option(0, "At most this many labels of the training data are wrong.", THREAT)
    target_tolerance: float = option(0.0, "For regression: every target may be off by this much.", THREAT)
    remove: int = option(0, "At most this many training samples should not be there.", THREAT)
    replace: int = option(0, "At most this many training samples were replaced by anything.", THREAT)
    test_epsilon: float = option(
        None, "Every test feature may have moved by this much.", THREAT, show_default="same as --epsilon"
    )
    test_tolerance: tuple[str, ...] = option(
        None,
        "The same as --tolerance, for test inputs; none for exact ones.",
        THREAT,
        metavar="COLUMN=...",
        show_default="same as --tolerance",
    )

    domain: str = option("zonotope", "How sets are represented: interval or zonotope.", NETWORK)
    model: str = option("mlp", "The network: mlp, cnn, or your own as file.py:make_model, which is run.", NETWORK)
    hidden: str = option(
        "16",
        "Widths of the hidden layers, such as 20 or 16,16; none for a linear model.",
        NETWORK,
        show_default="none for tables, 10 for images, otherwise 16, or 100 that are --frozen",
    )
    channels: str = option("8,16", "Channels of the convolutions of a cnn.", NETWORK)
    activation: str = option("tanh", "What follows each hidden layer: tanh, relu, sigmoid and others.", NETWORK)
    init_scale: float = option(
        8.0, "The first layer's initial weights and biases are multiplied by this.", NETWORK, show_default=BY_RULE
    )
    frozen: int = option(
        0,
        "How many of the first layers keep their initial or pretrained values.",
        NETWORK,
        show_default="0, but 1 where nothing is said about the network and the data are points",
    )

    fit: str = option(
        "auto",
        "auto, optimum (least squares on fixed features, whichever solver) or steps.",
        TRAINING,
        show_default="optimum for tables of which labels or targets alone are in doubt, otherwise steps",
    )
    features: str = option("auto", "At the optimum: kernel, random:2000 or none.", TRAINING, show_default="by rule")
    l2: float | None = option(None, "At the optimum: the ridge.", TRAINING, show_default=BY_RULE)
    loss: str = option("auto", "What is minimised: bce, ce, hinge or mse; auto goes by the task.", TRAINING)
    optimizer: str = option("sgd", "How it is minimised: sgd, adam, adamw or rmsprop.", TRAINING)
    lr: float = option(0.2, "Learning rate; for a table it goes by the loss.", TRAINING, show_default=BY_RULE)
    lr_decay: float = option(0.0, "The learning rate of step t is lr / (1 + this t).", TRAINING, show_default=BY_RULE)
    momentum: float = option(0.9, "Momentum of sgd and rmsprop; the others have none.", TRAINING, show_default=BY_RULE)
    weight_decay: float = option(0.0, "Weight decay.", TRAINING)
    clip_gradients: float | None = option(None, "Clip the gradient of every sample to this norm.", TRAINING)
    epochs: int = option(2, "How often every training sample is used.", TRAINING, show_default=BY_RULE)
    steps: int | None = option(
        None, "Stop after this many steps.", TRAINING, show_default="by rule; all of them with --epochs"
    )
    batch_size: int = option(100, "Samples in a step; 0 takes all of them at once.", TRAINING, show_default=BY_RULE)
    tuned_on: str = option("nothing", "Where steps and rate were chosen: nothing, trusted or declared data.", TRAINING)
    seed: int = option(0, "Fixes the data drawn, the initial weights and the order of the batches.", TRAINING)
    order: int = option(
        20,
        "Error rows a zonotope keeps for each number in parameters and optimizer state.",
        TRAINING,
        show_default=BY_RULE,
    )
    members: int = option(
        0, "How many members vote, each trained on its own part of the data; 0 for one model.", TRAINING
    )
    memory: float = option(8.0, "GiB that a run may take besides its data.", TRAINING)
    device: str = option("cpu", "Where tensors live, such as cpu or cuda.", TRAINING)
    dtype: str = option("float64", "Precision of the run: float32 or float64.", TRAINING)

    def __post_init__(self) -> None:
        others = (self.tolerance, self.any_category, self.missing, self.flip_labels, self.target_tolerance)
        if self.epsilon is None:
            object.__setattr__(self, "epsilon", 0.0 if any((*others, self.remove, self.replace)) else 1e-3)
        if self.test_epsilon is None:
            object.__setattr__(self, "test_epsilon", self.epsilon)
        if self.test_tolerance is None:
            object.__setattr__(self, "test_tolerance", self.tolerance)
        elif self.test_tolerance == ("none",):
            object.__setattr__(self, "test_tolerance", ())
        for name, (least, limit) in RANGES.items():
            if getattr(self, name) is not None:
                self.within(name, least, limit)
        parse_widths(self.hidden, "hidden")
        parse_widths(self.channels, "channels")
        if self.tuned_on.partition(":")[0] not in TUNED_ON:
            raise Mistake(f"--tuned-on must be one of {', '.join(TUNED_ON)}, not {reprlib.repr(self.tuned_on)}")
        if self.data is not None and self.target is None:
            raise Mistake("--data needs --target, the column that is predicted")
        if self.replace and self.clip_gradients is None:
            raise Mistake("--replace needs --clip-gradients, which is all that bounds a sample that may be anything")

    def within(self, name: str, least: float, limit: float) -> None:
        """Refuse a number outside [least, limit); NaN is outside of everything."""
        value = getattr(self, name)
        if not least <= value < limit:
            below = "" if limit == inf else f" and below {limit:g}"
            told = f"{value:g}" if isinstance(value, float) else str(value)
            raise Mistake(f"{flag_of(name)} must be a finite number of at least {least:g}{below}, not {told}")

    @property
    def title(self) -> str:
        """What the run is of."""
        return self.dataset if self.data is None else Path(self.data).name


TUNED_ON = ("nothing", "trusted", "declared")
MOST = 1e15  # of anything that is counted
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("epsilon", "test_epsilon"), (0, inf)),
    **dict.fromkeys(("frozen", "batch_size", "flip_labels", "remove", "replace", "members"), (0, MOST)),
    **dict.fromkeys(("lr", "lr_decay", "weight_decay", "init_scale"), (0, 1e30)),
    "target_tolerance": (0, 1e150),
    **dict.fromkeys(("epochs", "trusted_epochs", "order", "steps", "at_most"), (1, MOST)),
    "momentum": (0, 1),
    "clip_gradients": (1e-300, inf),
    "memory": (1e-3, 1e9),
    "l2": (1e-300, 1e300),
    "seed": (0, 2**32),
}


def parse_widths(widths: str, name: str = "hidden") -> tuple[int, ...]:
    """The widths of layers: "16,8" is (16, 8), and "none" is ()."""
    if widths == "none":
        return ()
    if not all(width.strip().isdecimal() and len(width) < 19 and int(width) > 0 for width in widths.split(",")):
        given = reprlib.repr(widths)
        raise Mistake(f"{flag_of(name)} must be positive widths such as 20 or 16,16, or none, not {given}")
    return tuple(int(width) for width in widths.split(","))


def flag_of(name: str) -> str:
    """The flag that sets a field: test_epsilon is set by --test-epsilon."""
    return "--" + name.replace("_", "-")


# --- defaults by kind of data, network, domain and threat ----------------------------------------------------------

# the beginning of a dataset's name -> the kind of its inputs; a table of the user has columns, and others are points
INPUTS = {
    "adult": recipes.COLUMNS,
    **dict.fromkeys(("breast-cancer", "iris", "digits"), recipes.UNIT_COLUMNS),
    **dict.fromkeys(("mnist", "fashion-mnist", "cifar-10", "pneumonia-mnist"), recipes.PIXELS),
    "half-moons": recipes.HALF_MOONS,
}
# the kind of inputs -> the network for it
NETWORKS: dict[str, dict[str, Any]] = {
    recipes.POINTS: {"hidden": "100", "frozen": 1},
    **dict.fromkeys((recipes.COLUMNS, recipes.UNIT_COLUMNS), {"hidden": "none"}),
    recipes.PIXELS: {"hidden": "10"},
    recipes.HALF_MOONS: {"hidden": "128", "activation": "relu", "loss": "ce"},
}


NETWORK_NAMES = ("hidden", "model", "activation", "frozen")  # of points, all of them go by rule or none does


def inputs_of(chosen: Mapping[str, Any]) -> str:
    """The kind of the inputs of a run."""
    if chosen.get("data") is not None:
        return recipes.COLUMNS
    name = chosen.get("dataset", "")
    return next((kind for beginning, kind in INPUTS.items() if name.startswith(beginning)), recipes.POINTS)


def network_for(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The network, as far as it was not chosen. Of points, whoever names a part of a network has all of it trained."""
    kind = inputs_of(chosen)
    named = any(name in chosen for name in (*NETWORK_NAMES, "trusted"))
    if kind == recipes.POINTS and (named or chosen.get("domain", "zonotope") != "zonotope"):
        return {}
    return NETWORKS[kind]


def situation(options: Mapping[str, Any]) -> recipes.Situation:
    """What the rules may look at, of all options. A network of a file is not known yet, and is taken for a deep one."""
    depth = {"mlp": 0, "cnn": len(parse_widths(options["channels"], "channels"))}.get(options["model"])
    return recipes.Situation(
        inputs_of(options),
        2 if depth is None else depth + len(parse_widths(options["hidden"], "hidden")),
        depth is not None and options["activation"] in recipes.SMOOTH,
        bool(options["frozen"]),
        options["domain"],
        bool(options["regression"]),
        bool(options["flip_labels"]),
        own=depth is None,
    )


def resolve(given: Mapping[str, Any], from_file: Mapping[str, Any]) -> Options:
    """The command line before the file, the file before the rules, the rules before the defaults."""
    chosen = {**from_file, **given}
    options = _as_chosen(chosen)
    options = replace(options, fit=way_of(chosen, options))
    plain = {name: value for name, value in chosen.items() if name not in OF_STEPS} | {"fit": "steps"}
    by_rule = options if options.fit != "optimum" else _as_chosen({**plain, "features": "auto", "l2": None})
    require_one_way(options, chosen, by_rule)
    return options


def _as_chosen(chosen: Mapping[str, Any]) -> Options:
    """The options of some choices, and of the rules for the rest."""
    network = {**network_for(chosen), **chosen}
    known = {entry.name: entry.default for entry in fields(Options)} | network
    return Options(**{**network, **recipes.completed(situation(known), chosen)})


# what is about steps, or about networks that have no one optimum
OF_STEPS = (
    *("loss", "optimizer", "lr", "lr_decay", "momentum", "weight_decay", "clip_gradients", "epochs", "steps"),
    *("batch_size", "order", "init_scale", "domain", "model", "hidden", "frozen", "trusted", "members", "tuned_on"),
)
FITS = ("auto", "optimum", "steps")


def way_of(chosen: Mapping[str, Any], options: Options) -> str:
    """``optimum`` where that is fitted; otherwise what was said, and a network is trained step by step."""
    if options.fit not in FITS:
        raise Mistake(f"--fit must be one of {', '.join(FITS)}, not {reprlib.repr(options.fit)}")
    if options.fit != "auto":
        return options.fit
    given = {name: chosen[name] for name in OF_STEPS if chosen.get(name) is not None}
    stepwise = given.keys() - {"hidden"} or given.get("hidden", "none") != "none"
    columns = inputs_of(chosen) in (recipes.COLUMNS, recipes.UNIT_COLUMNS) and options.hidden == "none"
    return "optimum" if columns and not stepwise and labels_alone(options) and not of_images(options) else "auto"


def of_images(options: Options) -> bool:
    """Whether a built-in dataset has images; a table never has."""
    from fullcert.data.datasets.catalogue import ABOUT, listed

    return options.data is None and len(ABOUT[listed(options.dataset)].shape) > 1


def labels_alone(options: Options) -> bool:
    """Whether labels or targets may be wrong, and nothing else."""
    others = (options.epsilon, options.tolerance, options.any_category, options.missing, options.remove)
    return bool(options.flip_labels or options.target_tolerance) and not any((*others, options.replace))


def require_one_way(options: Options, chosen: Mapping[str, Any], by_rule: Options) -> None:
    """Refuse options of the other way to fit."""
    if options.fit == "optimum":
        others = [name for name in OF_STEPS if name in chosen and getattr(options, name) != getattr(by_rule, name)]
        if others:
            raise Mistake(f"--fit optimum has no steps and one layer: leave out {', '.join(map(flag_of, others))}")
        if not labels_alone(options):
            raise Mistake("--fit optimum is for --flip-labels or --target-tolerance alone: use --fit steps")
    elif options.features != "auto" or options.l2 is not None:
        name = "features" if options.features != "auto" else "l2"
        raise Mistake(f"{flag_of(name)} is for --fit optimum, and this run goes step by step")


def given_for(options: Options) -> dict[str, Any]:
    """Few options from which these follow: what one would give, while rules and defaults say the rest."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    said = {"dataset" if options.data is None else "data", *(["epsilon"] if options.epsilon else [])}
    last = ("fit",)  # which follows from what else is there
    for names in (NETWORK_NAMES, *((name,) for name in given if name not in said), last):
        fewer = {name: value for name, value in given.items() if name not in names}
        try:
            same = resolve(fewer, {}) == options
        except Mistake:  # one that others need
            same = False
        given = fewer if same else given
    return given


def command_for(given: Mapping[str, Any]) -> str:
    """The command that trains with these options, as it is typed."""
    words = ["fullcert", "train"]
    for name, value in given.items():
        if name == "test_tolerance" and value == ():
            words += [flag_of(name), "none"]
        elif value is True:
            words.append(flag_of(name))
        elif isinstance(value, tuple):
            words += [word for part in value for word in (flag_of(name), part)]
        elif value is not None and value is not False:
            short = f"{value:g}" if isinstance(value, float) else f"{value}"
            words += [flag_of(name), short if not isinstance(value, float) or float(short) == value else f"{value!r}"]
    return shlex.join(words)


# --- files ------------------------------------------------------------------------------------------------------------


def read_options(path: Path) -> dict[str, Any]:
    """The options in a TOML file; keys are those of the flags, with - or _."""
    try:
        found = _parsed(unpacking.content(path, unpacking.TEXT).decode())
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise Mistake(f"{path} is not TOML of options: it is nested too deeply") from None
    except ValueError as error:  # of TOML, of its letters, of integers with thousands of digits
        raise Mistake(f"{path} is not TOML: {error}") from None
    known = {entry.name: entry.type for entry in fields(Options)}
    options: dict[str, Any] = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name not in known:
            raise Mistake(f"{path} sets {key!r}, and there is no such option")
        if name in options:
            raise Mistake(f"{path} sets {key!r} twice")
        options[name] = fitting(value, known[name], f"{key!r} in {path}")
    return options


def _parsed(text: str) -> dict[str, Any]:
    """What TOML says; keys within keys are refused first, since tomllib takes minutes where there are thousands."""
    if DOTTED.search(STRING.sub('""', text)):
        raise RecursionError
    return tomllib.loads(text)


STRING = re.compile(r""""(?:[^"\\\n]|\\.)*\"|'[^'\n]*'""")
DOTTED = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|\"\")[ \t]*){32}""")


def fitting(value: Any, kind: Any, what: str) -> Any:
    """A value of the file as the type of its option."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if tuple[str, ...] in kinds:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise Mistake(f"{what} must be a word or a list of words")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise Mistake(f"{what} is too large")
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) not in kinds:
        names = " or ".join(k.__name__ for k in kinds if k is not type(None))
        raise Mistake(f"{what} must be {names}, not {reprlib.repr(value)}")
    return value


def as_toml(options: Options) -> str:
    """All options as a file that gives the same run again."""
    lines = [f"{name} = {written_value(value)}" for name, value in asdict(options).items() if value is not None]
    return "\n".join(lines) + "\n"


def written_value(value: Any) -> str:
    """JSON's words, numbers, truths and lists are TOML's too, but for one character that TOML wants escaped."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
