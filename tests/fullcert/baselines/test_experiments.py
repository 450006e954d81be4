"""The experiments with baselines: small cuts of what they run."""

import torch

from fullcert.reproduce import bagflip
from fullcert.reproduce.agt_interval import half_moons
from fullcert.reproduce.experiments import Scale, load

CPU = torch.device("cpu")


def test_they_are_registered():
    table = load()
    for name in ("bagflip-moons", "bagflip-mnist", "interval-baseline"):
        cases = table[name].cases(Scale(quick=True))
        assert any(case.quick for case in cases) and len({str((c.setting, c.domain, c.recipe)) for c in cases}) == len(
            cases
        )


def test_moons_certify_less_the_further_they_move():
    for run in (lambda e: bagflip.moons_by_bags("bagging", e, 60, 0, CPU), lambda e: bagflip.moons_by_parts(e, 0, CPU)):
        values = [run(epsilon) for epsilon in (1e-4, 1e-3, 1e-1)]
        assert values[0].value >= values[1].value >= values[2].value == 0
        assert values[0].nominal > 90 and 60 < values[0].value <= values[0].nominal


def test_digits(monkeypatch):
    """On images that are drawn here: ones have a column of pixels, sevens a row."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    x = (torch.rand(120, 1, 28, 28, generator=generator) > 0.95).long()
    x[y == 0, :, :, 12:16] = 1
    x[y == 1, :, 4:8, :] = 1
    monkeypatch.setattr(bagflip, "digits", lambda device: ((x[:100], y[:100]), (x[100:], y[100:])))
    monkeypatch.setattr(bagflip, "DIGIT_PARTS", 20)
    _forget_votes()
    found = [
        bagflip.digits_by_sets(2.0, None, None, 0, CPU),
        bagflip.digits_by_bags("bagflip", 1.0, 100, 0, CPU),
        bagflip.digits_by_parts(2.0, 0, CPU),
    ]
    _forget_votes()
    assert all(one.nominal == 100 for one in found)
    assert all(one.value > 80 for one in found)


def _forget_votes():
    bagflip.digit_votes.cache_clear()
    bagflip.part_votes.cache_clear()


def test_intervals_have_no_answer_to_large_moves_of_everything():
    outcome = half_moons(0.01, 3000, 0, CPU)
    assert outcome.value == 0 and round(outcome.nominal, 1) == 95.6 and not outcome.details["not_tracked"]
