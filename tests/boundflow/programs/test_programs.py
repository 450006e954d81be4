"""Every odd but legal program holds all poisoned plain runs, with no tolerance, or is refused by a named error."""

from __future__ import annotations

import pytest
import torch

import boundflow as bf
from programs import oracle, verdict
from programs.entries import PROGRAMS
from programs.page import COMMAND, PAGE, happens, listed, of_this_torch
from programs.sets import Bounds
from programs.verdict import Verdict, judged, of_error, outside

CASES = [(name, domain) for name, program in PROGRAMS.items() for domain in program.domains]


@pytest.mark.parametrize(("name", "domain"), CASES, ids=[f"{name}-{domain}" for name, domain in CASES])
def test_contained_or_refused_by_name(name: str, domain: str) -> None:
    program = PROGRAMS[name]
    found = judged(program, domain)
    assert found.sound, f"{program.odd} {found.sentence}"
    assert found.fits(program.expected), (
        f"{program.odd} Expected: {program.expected}; found: {found.outcome} {found.error}: {found.sentence}. "
        "This is sound; if it is meant, change the entry of the program."
    )
    if of_this_torch():
        told = happens(PAGE.read_text())[name]
        assert (found.error or "contained") in told, f"docs/programs.md is old: run `{COMMAND}`"


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 60


def test_the_page_lists_every_program() -> None:
    told = f"docs/programs.md is old: run `{COMMAND}`"
    assert sorted(listed(PAGE.read_text())) == sorted(PROGRAMS), told


# --- the judge itself -------------------------------------------------------------------------------------------------


def bounds_of(value: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor) -> tuple[Bounds, list[oracle.Run]]:
    run = oracle.Run({"w": value}, {}, [torch.zeros(1, 2)])
    return Bounds({"w": (lower, upper)}, {}, [(torch.zeros(1, 2), torch.zeros(1, 2))]), [run]


def test_the_judge_tolerates_nothing() -> None:
    one = torch.ones(2)
    above = torch.nextafter(one, 2 * one)
    assert outside(*bounds_of(one, one, one)) == []
    for lower, upper in ((above, above), (0 * one, torch.nextafter(one, 0 * one)), (one, one * torch.nan)):
        assert "parameter w" in outside(*bounds_of(one, lower, upper))[0]
    assert "shape" in outside(*bounds_of(one, torch.zeros(()), torch.ones(())))[0]


def test_the_judge_wants_the_nominal_model_and_certified_labels_of_plain_training() -> None:
    bounds, runs = bounds_of(torch.ones(2), torch.zeros(2), 2 * torch.ones(2))
    assert "nominal" in outside(bounds._replace(nominal={"w": torch.zeros(2)}), runs)[0]
    wrong = bounds._replace(certified=torch.tensor([True]), label=torch.tensor([1]))
    assert "certified" in outside(wrong, runs)[0]


def test_the_judge_knows_errors_with_a_name() -> None:
    assert of_error(bf.Undecided("this is not decided")) == Verdict("raised", "Undecided", "this is not decided")
    for unnamed in (
        RuntimeError("something failed"),
        ValueError("not raised by boundflow"),
        bf.BoundFlowError("short"),
    ):
        assert not of_error(unnamed).sound
    with pytest.raises(ValueError, match="order must be") as raised:
        bf.Symbols(order=0)
    assert of_error(raised.value).sound
    with pytest.raises(AssertionError, match="no attack"):
        verdict.require_effect([oracle.Run({"w": torch.ones(1)}, {}, [])] * 2)
