"""Laws of a certified run: every plain run inside the threat lands inside the set."""

import pytest
import torch

import boundflow as bf
from fullcert.evaluation import ABSTAIN, certified_labels, lead_of, least_leads, measure, predicted_labels
from fullcert.options import Options
from fullcert.training import Certified, Recipe, Samples


def silent(done: int, total: int, loss: float) -> None:
    assert done <= total


def recipe(**changes: object) -> Recipe:
    return Recipe(
        Options(**{"epochs": 3, "batch_size": 0, "hidden": "4", "order": 3, "epsilon": 1e-3, "lr": 0.1, **changes})
    )


def poisoned(original: Recipe, seed: int) -> Recipe:
    """The same recipe on a dataset in a corner of the threat."""
    copy = Recipe(original.options)
    torch.manual_seed(seed)
    inputs = copy.train.inputs
    corner = original.options.epsilon * (2 * torch.randint(0, 2, inputs.shape) - 1)
    # a hair inside the threat, so that the sum never rounds to just outside
    copy.train = Samples(inputs + corner.to(inputs) * (1 - 1e-6), copy.train.labels)
    return copy


RECIPES = [
    {"domain": domain, "loss": loss, "optimizer": optimizer}
    for domain in ("interval", "zonotope")
    for loss, optimizer in (("bce", "sgd"), ("ce", "sgd"), ("hinge", "sgd"), ("mse", "sgd"), ("bce", "adam"))
] + [
    {"domain": "zonotope", "activation": "relu", "hidden": "4,3"},
    {"domain": "zonotope", "batch_size": 300, "weight_decay": 0.01},
    {"domain": "interval", "activation": "sigmoid", "optimizer": "rmsprop", "lr": 0.01},
    {"domain": "interval", "dtype": "float32", "optimizer": "adamw", "lr": 0.01},
]


@pytest.mark.parametrize("changes", RECIPES, ids=lambda changes: "-".join(map(str, changes.values())))
def test_plain_and_poisoned_runs_land_inside(changes: dict[str, object]) -> None:
    original = recipe(**changes)
    certified = original.train_certified(silent)
    assert certified.model is not None and certified.void_at_step is None
    labels = certified_labels(original, certified, original.test)
    bounds = dict(certified.model.named_parameters())
    for trained in (original, poisoned(original, 1), poisoned(original, 2)):
        plain = trained.train_plain()
        for name, value in plain.named_parameters():
            assert (bounds[name].lower <= value).all() and (value <= bounds[name].upper).all(), name
        predicted = predicted_labels(plain, original.test.inputs)
        assert ((labels == ABSTAIN) | (labels == predicted)).all()


def test_training_leaves_the_initial_model_and_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    made = recipe(batch_size=500)
    first = [parameter.clone() for parameter in made.initial.parameters()]
    made.train_plain()
    made.train_certified(silent)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, made.initial.parameters(), strict=True))


def test_every_sample_is_used_once_an_epoch() -> None:
    batches = recipe(batch_size=300, epochs=2).batches
    assert [len(index) for index in batches] == [300, 300, 300, 100] * 2
    for epoch in (batches[:4], batches[4:]):
        assert torch.equal(torch.cat(epoch).sort().values, torch.arange(1000))
    assert not torch.equal(batches[0], batches[4])


def test_a_larger_threat_certifies_no_more() -> None:
    shares = []
    for epsilon in (1e-4, 1e-3, 1e-2):
        made = recipe(epsilon=epsilon, domain="interval")
        shares.append(measure(made, made.train_plain(), made.train_certified(silent))["certified_robustness"])
    assert shares == sorted(shares, reverse=True) and shares[0] > 0


def test_leads_are_taken_on_differences() -> None:
    one = bf.ball(torch.tensor([[2.0], [0.0], [-2.0]]), 1.0)
    made = recipe()
    certified = Certified(lambda inputs: one, None, 0.0)  # type: ignore[arg-type]
    samples = Samples(torch.zeros(3, 2), torch.zeros(3))
    assert certified_labels(made, certified, samples).tolist() == [1, ABSTAIN, 0]
    several = bf.ball(torch.tensor([[5.0, 1.0, 2.0], [1.0, 1.5, 0.0]]), 0.5)
    assert (lead_of(0, several)[0] > 1.9) and (lead_of(0, several)[1] < 0) and (lead_of(1, several)[1] < 0)


def test_a_void_set_certifies_nothing() -> None:
    made = recipe()
    void = Certified(None, 1, 0.0)
    assert (least_leads(made, void, made.test.inputs) == -torch.inf).all()
    assert (certified_labels(made, void, made.test) == ABSTAIN).all()
