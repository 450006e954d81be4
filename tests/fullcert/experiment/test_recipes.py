"""Rules for recipes: one for every situation, blind to data and the size of a threat, and recorded."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from fullcert.experiment import recipes
from fullcert.experiment.options import Options, resolve
from fullcert.experiment.recipes import RULES, Situation, completed, record, rule_of

KINDS = (recipes.POINTS, recipes.COLUMNS, recipes.UNIT_COLUMNS, recipes.PIXELS, recipes.HALF_MOONS)
EITHER = (False, True)
DOMAINS = ("interval", "zonotope")
SITUATIONS = [
    Situation(*parts)
    for parts in itertools.product(KINDS, range(4), EITHER, EITHER, DOMAINS, EITHER, EITHER, EITHER, EITHER)
]
SET = {"epochs", "steps", "lr", "lr_decay", "momentum", "batch_size", "init_scale", "order"}


def test_every_situation_has_a_rule_and_every_rule_a_situation() -> None:
    assert {rule_of(situation).name for situation in SITUATIONS} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_sets_the_same_options_and_says_what_it_was_measured_on(rule: recipes.Rule) -> None:
    assert rule.values.keys() == SET and rule.measured
    Options(**{**rule.values, "lr": 0.1})


def test_intervals_take_few_steps_and_kinks_fewer_than_smooth_networks() -> None:
    for depth in (1, 2):
        interval, kinks, smooth = (
            rule_of(Situation(recipes.POINTS, depth, smooth, domain=domain)).values["steps"]
            for smooth, domain in ((False, "interval"), (False, "zonotope"), (True, "zonotope"))
        )
        assert interval < kinks <= smooth


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("data", ["two-moons", "mnist-1-7"])
def test_a_network_of_the_user_keeps_its_weights_and_is_trained_until_it_learns(data: str, domain: str) -> None:
    """A CNN on MNIST 1/7 had two steps, was right for 52.4 %, and all of that was certified."""
    options = resolve({"dataset": data, "model": "net.py:make_model", "domain": domain}, {})
    assert (options.steps, options.lr, options.momentum, options.init_scale) == (12, 0.1, 0.9, 1.0)
    (rule,) = (rule for rule in RULES if rule.name == "your own network")
    assert "Intervals certify nothing" in rule.measured


@pytest.mark.parametrize(
    "sweep",
    [
        [{"epsilon": epsilon} for epsilon in (1e-4, 1e-3, 1e-2, 0.1)],
        [{"flip_labels": k} for k in (1, 5, 50)],
        [{"epsilon": 0.1, "at_most": k} for k in (1, 20)],
        [{"tolerance": (f"age={amount}",)} for amount in (1, 10)],
    ],
    ids=["epsilon", "labels", "samples", "tolerance"],
)
@pytest.mark.parametrize("data", [{}, {"dataset": "mnist-1-7"}, {"data": "t.csv", "target": "y"}, {"hidden": "20"}])
def test_a_sweep_keeps_one_recipe(sweep: list[dict[str, Any]], data: dict[str, Any]) -> None:
    made = [resolve({**data, **threat}, {}) for threat in sweep]
    assert len({tuple(getattr(options, name) for name in sorted(SET)) for options in made}) == 1


def test_the_record_tells_what_was_given_from_what_the_rule_chose() -> None:
    faced = Situation()
    values = completed(faced, {"momentum": 0.5})
    told = record(faced, {**values, "lr": 0.25, "seed": 3}, 0.25)
    assert told["rule"] == "linear" and told["given"] == {"momentum": 0.5}
    assert told["by_rule"]["lr"] == 0.25 and told["by_rule"].keys() | {"momentum"} == SET
    assert record(faced, {**values, "lr": 0.3}, 0.25)["given"] == {"momentum": 0.5, "lr": 0.3}


def test_the_page_of_the_command_has_the_rules_in_the_order_in_which_they_apply() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command.md").read_text()
    table = page.partition("| rule | for | steps |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table]
    assert [row[0] for row in cells] == [rule.name for rule in RULES]
    for row, rule in zip(cells, RULES, strict=True):
        values = rule.values
        rate = "by the loss" if values["lr"] is None else f"{values['lr']:g}"
        decay = f", decay {values['lr_decay']:g}" if values["lr_decay"] else ""
        batch, scale = str(values["batch_size"] or "all"), f"{values['init_scale']:g}"
        assert row[2:] == [
            *(str(values["steps"]), rate + decay, f"{values['momentum']:g}", batch, scale, str(values["order"])),
        ], rule.name
