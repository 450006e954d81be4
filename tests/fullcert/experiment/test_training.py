"""Laws of a certified run: every plain run inside the threat lands inside the set."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from poisoning import batches, poisoned_inputs, stacked_outputs, stacked_trainings
from torch import Tensor, nn

import boundflow as bf
from fullcert.experiment.losses import outputs
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe
from fullcert.results.evaluation import asked, evaluate, measure, on_test
from fullcert.system.jobs import Counted, Progress
from fullcert.system.mistakes import Mistake


def measured(made: Recipe, certificate: bf.Certificate) -> dict[str, Any]:
    return measure(made, certificate, on_test(made, certificate))


def recipe(**changes: object) -> Recipe:
    return Recipe(
        Options(**{"epochs": 3, "batch_size": 0, "hidden": "4", "order": 3, "epsilon": 1e-3, "lr": 0.1, **changes})
    )


# --- plain PyTorch, from the options alone ----------------------------------------------------------------------

LOSSES = {
    "bce": lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], y.to(z)),
    "hinge": lambda z, y: (1 - (2 * y - 1) * z[:, 0]).relu().mean(),
    "mse": lambda z, y: (z[:, 0] - (2 * y - 1)).square().mean(),
    "ce": F.cross_entropy,
}
OPTIMIZERS = {
    "sgd": lambda p, o: torch.optim.SGD(p, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay),
    "adam": lambda p, o: torch.optim.Adam(p, lr=o.lr, weight_decay=o.weight_decay),
    "adamw": lambda p, o: torch.optim.AdamW(p, lr=o.lr, weight_decay=o.weight_decay),
    "rmsprop": lambda p, o: torch.optim.RMSprop(p, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay),
}


def observed(made: Recipe) -> tuple[Tensor, Tensor]:
    train = made.data.train
    return torch.from_numpy(train.inputs).to(getattr(torch, made.options.dtype)), torch.from_numpy(train.labels)


def plain_trainings(made: Recipe, datasets: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """One training for each of the datasets, and their parameters stacked."""
    options = made.options
    if options.batch_size == 0:
        order = [torch.arange(len(labels))] * options.epochs
    else:
        order = list(batches(len(labels), options.batch_size, options.epochs, options.seed))
    model = copy.deepcopy(made.initial).to(datasets.dtype)
    return stacked_trainings(
        model, LOSSES[options.loss], lambda p: OPTIMIZERS[options.optimizer](p, options), datasets, labels, order
    )


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
    made = recipe(**changes)
    certificate = made.certify([])
    assert certificate.model is not None and certificate.void_at_step is None
    inputs, labels = observed(made)
    datasets = torch.cat([inputs[None], poisoned_inputs(inputs, labels, made.options.epsilon, 4, 1)])
    trained = plain_trainings(made, datasets, labels)
    nominal = dict(certificate.nominal.named_parameters())
    for name, bounds in certificate.model.named_parameters():
        for values in (trained[name], nominal[name]):
            assert ((bounds.lower <= values) & (values <= bounds.upper)).all(), name
        close = 1e-9 if inputs.dtype == torch.float64 else 1e-4
        assert torch.allclose(trained[name][0], nominal[name], rtol=close, atol=close), name
    test = torch.from_numpy(made.data.test.inputs)
    answers = certificate.predict(test, made.options.test_epsilon)
    logits = stacked_outputs(certificate.nominal, trained, test.to(inputs))
    predicted = (logits[..., 0] > 0).long() if logits.shape[-1] == 1 else logits.argmax(-1)
    assert (~answers.certified | (answers.label == predicted)).all()


def test_training_leaves_the_initial_model_and_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    made = recipe(batch_size=500)
    first = [parameter.clone() for parameter in made.initial.parameters()]
    made.certify([])
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, made.initial.parameters(), strict=True))


def test_every_sample_is_used_once_an_epoch() -> None:
    """In an order that is shuffled anew each epoch: the nominal model is that of plain PyTorch with this order."""
    made = recipe(batch_size=300, epochs=2)
    certificate = made.certify([])
    order = list(batches(1000, 300, 2, made.options.seed))
    assert [len(index) for index in order] == [300, 300, 300, 100] * 2 and certificate.record["steps"] == 8
    for epoch in (order[:4], order[4:]):
        assert torch.equal(torch.cat(epoch).sort().values, torch.arange(1000))
    assert not torch.equal(order[0], order[4])
    inputs, labels = observed(made)
    trained = plain_trainings(made, inputs[None], labels)
    for name, parameter in certificate.nominal.named_parameters():
        assert torch.allclose(trained[name][0], parameter, rtol=1e-9, atol=1e-9), name


def test_a_larger_threat_certifies_no_more() -> None:
    shares = []
    for epsilon in (1e-4, 1e-3, 1e-2):
        made = recipe(epsilon=epsilon, domain="interval")
        shares.append(measured(made, made.certify([]))["certified_robustness"])
    assert shares == sorted(shares, reverse=True) and shares[0] > 0


def test_leads_are_taken_on_differences() -> None:
    def answers(logits: bf.Bounded) -> bf.Prediction:
        class Fixed(nn.Module):
            def forward(self, inputs: torch.Tensor) -> bf.Bounded:
                return logits

        class Center(nn.Linear):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                return logits.center + 0 * super().forward(inputs)

        return bf.Certificate(Fixed(), Center(2, logits.shape[1])).predict(torch.zeros(len(logits), 2))

    one = answers(bf.ball(torch.tensor([[2.0], [0.0], [-2.0]]), 1.0))
    assert one.certified.tolist() == [True, False, True] and one.label[one.certified].tolist() == [1, 0]
    several = answers(bf.ball(torch.tensor([[5.0, 1.0, 2.0], [1.0, 1.5, 0.0]]), 0.5))
    assert several.label[0] == 0 and several.margin[0] > 1.9 and several.margin[1] < 0


def test_a_void_set_certifies_nothing() -> None:
    made = recipe()
    void = bf.Certificate(None, made.initial, {"loss": "bce", "steps": 3, "void_at_step": 1})
    answers = void.predict(torch.from_numpy(made.data.test.inputs))
    assert (answers.margin == -torch.inf).all() and not answers.certified.any()
    metrics = measured(made, void)
    assert metrics["certified_accuracy"] == metrics["certified_robustness"] == 0 and metrics["void_at_step"] == 1


@pytest.mark.parametrize("loss", ["bce", "ce", "mse"])
def test_a_saved_certificate_gives_the_metrics_of_its_run(loss: str, tmp_path: Path) -> None:
    made = recipe(loss=loss)
    certificate = made.certify([])
    certificate.save(tmp_path / "certificate")
    loaded = measured(made, bf.load(tmp_path / "certificate"))
    assert loaded == {**measured(made, certificate), "seconds": 0.0} and loaded["certified_robustness"] > 0


def test_a_loss_of_two_classes_refuses_three() -> None:
    assert outputs("ce", 3) == 3 and outputs("mse", 2) == 1
    with pytest.raises(Mistake, match="use ce"):
        outputs("mse", 3)


@pytest.mark.parametrize("changes", [{}, {"dataset": "iris", "loss": "ce"}, {"epsilon": 0.0, "flip_labels": 1}])
def test_a_test_is_followed_to_its_end(changes: dict[str, object]) -> None:
    """The bar that stands beside the questions to a certificate grows with each, and is full when all are asked."""
    made, told = recipe(**changes), list[Progress]()
    certificate, follow = made.certify([]), Counted(asked(made, drawn=True), told.append)
    test = on_test(made, certificate, follow)
    evaluate(made, certificate, test, measure(made, certificate, test, follow), [], follow)
    done = [one.done for one in told]
    assert done == sorted(done) and done[-1] == told[-1].total and len(set(done)) > 8
    assert {"varying the test radius", "drawing the plane" if made.task.planar else "listing the samples"} <= {
        one.now for one in told
    }
    follow = Counted(asked(made, drawn=False), told.append)
    measure(made, certificate, on_test(made, certificate, follow), follow)
    assert told[-1].done == told[-1].total
