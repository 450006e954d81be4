"""Several processes make one training: the bounds of one process, the same bits on all ranks, and no hanging."""

from __future__ import annotations

import shutil
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import ranked_runs
import torch
from ranked_runs import CASES, data, ended, found, network, on_ranks, started, trained
from torch import Tensor

import boundflow as bf
from boundflow.fast.processes.row_placement import largest_ones
from boundflow.operators.losses import LOSSES
from boundflow.symbols.budgets import largest

Said = dict[str, Tensor]


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Said]]:
    """Every case on two processes of gloo: what each rank found."""
    return on_ranks(list(CASES), tmp_path_factory.mktemp("ranks"))


def same_bounds(one: Said, two: Said, rtol: float = 1e-10) -> None:
    """Up to rounding: sums are made in another order, and each order is charged for."""
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=rtol, atol=1e-12, msg=lambda text: f"{name}: {text}")  # noqa: B023


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_the_bounds_of_one(case: str, on_two: list[dict[str, Said]]) -> None:
    same_bounds(found(trained(case)), on_two[0][case])


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_hold_the_same_bits(case: str, on_two: list[dict[str, Said]]) -> None:
    first, second = (rank[case] for rank in on_two)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_three_processes_and_streams(tmp_path: Path) -> None:
    """A stream pays for float32, so bounds are longer where supports of products are streamed."""
    said = on_ranks(["box", "batches"], tmp_path, 3, "stream=yes")
    for case in said[0]:
        same_bounds(found(trained(case)), said[2][case], rtol=1e-6)
        assert all(torch.equal(said[0][case][name], said[2][case][name]) for name in said[0][case])


# --- poisoned plain trainings ---------------------------------------------------------------------------------------


def plain(case: str, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Ordinary training of the recipe of a case on a dataset."""
    said = {name: value for name, value in CASES[case].items() if name not in ("threat", "outputs")}
    recipe, model = bf.Recipe(**said), network(CASES[case].get("outputs", 1))
    targets = y if recipe.loss == "ce" else y.double().unsqueeze(1)
    optimizer = torch.optim.SGD(model.parameters(), **recipe.optimizer_options)
    for index in recipe.batches(len(x), x.device):
        optimizer.zero_grad()
        LOSSES[recipe.loss](model(x[index]), targets[index]).backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("case", "moved", "amount", "flipped"),
    [("budget", 5, 0.05, 0), ("batches", 3, 0.05, 0), ("classes", 0, 0.0, 3), ("intervals, budget", 5, 0.01, 0)],
)
def test_poisoned_trainings_lie_inside(
    case: str, moved: int, amount: float, flipped: int, on_two: list[dict[str, Said]]
) -> None:
    """Touched samples are those of one rank, or of both."""
    said, random = on_two[0][case], np.random.default_rng(0)
    for trial in range(24):
        x, y = data()
        touched = random.permutation(np.arange(0, len(x), 2) if trial % 3 == 0 else len(x))[: moved or flipped]
        if flipped:
            y[touched] = 1 - y[touched]
        move = random.choice([-1.0, 1.0], size=x[touched].shape)
        x[touched] += 0.999 * amount * torch.from_numpy(move)
        for name, value in plain(case, x, y).items():
            assert bool(((said[f"lower {name}"] <= value) & (value <= said[f"upper {name}"])).all()), (
                case,
                trial,
                name,
            )


# --- budgets over owners of several ranks ---------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(("budget", "width"), [(1, 1), (3, 3), (5, 9), (9, 4), (40, 6), (4, 1)])
def test_the_largest_terms_of_all_ranks(ranks: int, budget: int, width: int) -> None:
    """In exact arithmetic: never less than the k largest of all owners, and the same where all of them were sent."""
    torch.manual_seed(ranks + budget)
    terms = [torch.rand(2, 3, count, dtype=torch.float64) for count in (7, 0, 13)[:ranks]]
    sent = [largest_ones(each, budget, width) for each in terms]
    assert all(each.shape == (2, 3, width) for each in sent)
    got = largest(torch.cat(sent, 2), budget, 2)
    for end in range(2):
        for element in range(3):
            every = sorted((Fraction(t) for each in terms for t in each[end, element].tolist()), reverse=True)
            exact = sum(every[:budget], Fraction(0))
            assert Fraction(got[end, element].item()) >= exact
            if budget <= width:
                assert float(got[end, element]) == pytest.approx(float(exact), rel=1e-12)


# --- when something goes wrong --------------------------------------------------------------------------------------


def test_a_killed_rank_is_told_at_once_and_any_number_goes_on(tmp_path: Path) -> None:
    """The checkpoint of two processes is that of one: both numbers of them finish it, with the same bounds."""
    file, script = tmp_path / "checkpoint.safetensors", Path(ranked_runs.__file__)
    command = [sys.executable, str(script), "budget", str(tmp_path), f"checkpoint={file}", "stop=1"]
    began = time.monotonic()
    (code, _, err), (killed, _, _) = ended(started(command, 2), 60)
    assert killed == -9 and code != 0 and "another process of this run has ended" in err.splitlines()[-1], err
    assert time.monotonic() - began < 60 and file.exists()
    kept = tmp_path / "kept.safetensors"
    shutil.copy(file, kept)
    whole = found(trained("budget"))
    same_bounds(whole, found(trained("budget", checkpoint=kept, resume=True)))
    said = on_ranks(["budget"], tmp_path, 2, f"checkpoint={file}")
    same_bounds(whole, said[0]["budget"])
    assert all(torch.equal(said[0]["budget"][name], said[1]["budget"][name]) for name in whole)


def test_a_silent_rank_is_not_waited_for_without_end(tmp_path: Path) -> None:
    processes = started([sys.executable, str(ranked_runs.__file__), "box", str(tmp_path), "patience=4"], 2)
    try:
        err = processes[0].communicate(timeout=60)[1]
    finally:
        processes[1].kill()
        ended(processes)
    assert processes[0].returncode == 1 and "another process of this run has ended or does not answer" in err


def test_ranks_with_other_data_are_told_apart(tmp_path: Path) -> None:
    command = [sys.executable, str(ranked_runs.__file__), "box", str(tmp_path), "other=yes"]
    for code, _, err in ended(started(command, 2), 60):
        assert code == 1 and "do not agree on what to train" in err.splitlines()[-1], err


def test_bounds_cannot_be_asked_for_while_ranks_train(tmp_path: Path) -> None:
    command = [sys.executable, str(ranked_runs.__file__), "box", str(tmp_path), "ask=yes"]
    first, second = ended(started(command, 2), 60)
    assert first[0] == 1 and "SpreadRows" in first[2].splitlines()[-1], first[2]
    assert second[0] == 1 and "LostRank" in second[2].splitlines()[-1], second[2]


def test_without_torchrun_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="Start the program with torchrun"):
        trained("box", distributed=True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, for NCCL")
def test_two_gpus_give_the_bounds_of_one_process(tmp_path: Path) -> None:
    said = on_ranks(["budget", "two clauses", "intervals, budget"], tmp_path, 2, "device=cuda")
    for case in said[0]:
        one = found(trained(case, device="cuda:0"))
        same_bounds({name: value.cpu() for name, value in one.items()}, said[1][case])
        assert all(torch.equal(said[0][case][name], said[1][case][name]) for name in one)
