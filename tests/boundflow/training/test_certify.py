"""certify() and Certificate: what a poisoned training can no longer change, in a file that says how it was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from moons import moons, network
from poisoning import poisoned_inputs

import boundflow as bf

RECIPE = {"optimizer_options": {"lr": 0.3, "momentum": 0.9}, "epochs": 3, "batch_size": 20, "order": 5}


@pytest.fixture(scope="module")
def certificate() -> bf.Certificate:
    return bf.certify(network(), moons(60, 0), threat=bf.threats.Linf(1e-3), loss="bce", **RECIPE)


@pytest.mark.parametrize("loss", ["bce", "ce", "hinge"])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_certified_predictions_survive_poisoning(loss: str, domain: str) -> None:
    """Retrain on poisoned data, move the test points: certified labels never change, and most are certified."""
    x, y = moons(40, 1)
    test_x, test_y = moons(100, 2)
    model, epsilon = network(2 if loss == "ce" else 1), 1e-3 if domain == "zonotope" else 1e-5
    recipe = {**RECIPE, "epochs": 2, "optimizer_options": {"lr": 0.2}}
    cert = bf.certify(model, (x, y), threat=bf.threats.Linf(epsilon), loss=loss, domain=domain, **recipe)
    prediction = cert.predict(test_x, epsilon=epsilon)
    assert prediction.certified.double().mean() > 0.7
    for number, poisoned in enumerate(poisoned_inputs(x, y, epsilon, 12, 3)):
        other = bf.certify(model, (poisoned, y), threat=bf.threats.Linf(0.0), loss=loss, domain="interval", **recipe)
        moved = poisoned_inputs(test_x, test_y, epsilon, 12, 4)[number]
        with torch.no_grad():
            logits = other.nominal(moved)
        labels = (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)
        assert bool((labels == prediction.label)[prediction.certified].all())
        assert bool(((prediction.lower <= logits) & (logits <= prediction.upper)).all())


def test_a_strong_attack_loses_the_certificate() -> None:
    """More room for the attacker never certifies more, and enough room certifies nothing."""
    x, y = moons(40, 1)
    test = moons(100, 2)
    shares = []
    for epsilon in (1e-4, 1e-2, 0.5):
        cert = bf.certify(network(), (x, y), threat=bf.threats.Linf(epsilon), loss="bce", **{**RECIPE, "epochs": 2})
        shares.append(cert.accuracy(*test, epsilon=epsilon).certified)
    assert shares[0] >= shares[1] >= shares[2] and shares[0] > 0.8 and shares[2] == 0


def test_answers(certificate: bf.Certificate) -> None:
    x, y = moons(50, 5)
    many, one = certificate.predict(x, epsilon=1e-3), certificate.predict(x[7], epsilon=1e-3)
    assert len(many) == 50 and len(one) == 1 and one.label[0] == many.label[7]
    assert bool((many.margin[many.certified] > 0).all()) and bool((many.margin[~many.certified] <= 0).all())
    assert bool((many.lower <= many.upper).all())
    accuracy = certificate.accuracy(x, y, epsilon=1e-3)
    assert accuracy.certified <= accuracy.nominal and accuracy.certified <= accuracy.robustness
    assert certificate.accuracy(x, y, epsilon=0.3).certified <= accuracy.certified
    assert certificate.seconds > 0 and certificate.void_at_step is None
    clipped = certificate.predict(x.clamp(0, 1), epsilon=5.0, clip=(0, 1))
    assert bool((clipped.upper < certificate.predict(x.clamp(0, 1), epsilon=5.0).upper).all())


def test_the_record_says_how_it_was_found(certificate: bf.Certificate) -> None:
    record = certificate.record
    assert record["threat"] == "Linf(0.001)" and record["steps"] == 9 and record["rounding"] == "outward"
    assert record["domain"] == "zonotope" and record["dtype"] == "float64" and len(record["data"]) == 64
    assert "fixed before training" in record["step_chosen"]
    with bf.rounding.nearest():
        other = bf.certify(network(), moons(20, 0), threat=bf.threats.Linf(1e-3), loss="bce")
    assert other.record["rounding"] == "nearest"


def test_the_record_is_exact_and_can_always_be_written(tmp_path) -> None:
    options = {"lr": torch.tensor(0.1, dtype=torch.float64), "betas": (0.9, 0.99)}
    threat = bf.threats.Linf(0.00123456789)
    cert = bf.certify(
        network(), moons(20, 0), threat=threat, loss="bce", optimizer=torch.optim.Adam, optimizer_options=options
    )
    assert cert.record["threat"] == "Linf(0.00123456789)" and cert.record["optimizer_options"]["lr"] == 0.1
    cert.save(tmp_path / "c")


def test_deterministic_under_a_seed(certificate: bf.Certificate, tmp_path) -> None:
    again = bf.certify(network(), moons(60, 0), threat=bf.threats.Linf(1e-3), loss="bce", **RECIPE)
    for path, made in ((tmp_path / "a", certificate), (tmp_path / "b", again), (tmp_path / "c", certificate)):
        made.save(path)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    other = bf.certify(network(), moons(60, 0), threat=bf.threats.Linf(1e-3), loss="bce", seed=1, **RECIPE)
    assert not torch.equal(other.nominal[0].weight, certificate.nominal[0].weight)


def test_files(certificate: bf.Certificate, tmp_path) -> None:
    path = tmp_path / "moons.safetensors"
    certificate.save(path)
    loaded = bf.load(path)
    x, y = moons(80, 6)
    before, after = (cert.predict(x, epsilon=1e-3) for cert in (certificate, loaded))
    assert torch.equal(before.label, after.label) and torch.equal(before.certified, after.certified)
    assert torch.allclose(before.lower, after.lower, atol=1e-9) and loaded.record == certificate.record
    assert bool((after.lower <= before.lower + 1e-9).all())
    assert bf.load(path, model=network(seed=3)).accuracy(x, y, epsilon=1e-3) == loaded.accuracy(x, y, epsilon=1e-3)


def test_files_that_do_not_fit(certificate: bf.Certificate, tmp_path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "c.safetensors"
    certificate.save(path)
    with pytest.raises(bf.BoundFlowError, match="does not fit"):
        bf.load(path, model=nn.Sequential(nn.Linear(3, 1)))
    with pytest.raises(bf.BoundFlowError, match="cannot be read"):
        bf.load(tmp_path / "missing")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-40])
    with pytest.raises(bf.BoundFlowError, match="cannot be read"):
        bf.load(tmp_path / "cut")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(bf.BoundFlowError, match="not a certificate"):
        bf.load(tmp_path / "other")
    save_file({"x": torch.zeros(1)}, tmp_path / "new", metadata={"boundflow": json.dumps({"format": 99})})
    with pytest.raises(bf.BoundFlowError, match="another version"):
        bf.load(tmp_path / "new")


def test_a_certificate_that_changed_on_the_way_is_refused(certificate: bf.Certificate, tmp_path) -> None:
    """A bound that is off by one bit would still look like a bound."""
    certificate.save(tmp_path / "c")
    content = (tmp_path / "c").read_bytes()
    for place in torch.randint(len(content) // 2, len(content), (20,), generator=torch.Generator().manual_seed(0)):
        changed = bytearray(content)
        changed[int(place)] ^= 1
        (tmp_path / "changed").write_bytes(bytes(changed))
        with pytest.raises(bf.BoundFlowError, match="damaged"):
            bf.load(tmp_path / "changed")


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return self.inner(x)


def test_custom_modules_bring_their_own_class(tmp_path) -> None:
    torch.manual_seed(0)
    cert = bf.certify(Custom(), moons(20, 0), threat=bf.threats.Linf(1e-3), loss="bce")
    cert.save(tmp_path / "custom")
    with pytest.raises(bf.BoundFlowError, match="custom module"):
        bf.load(tmp_path / "custom")
    x, _ = moons(10, 1)
    loaded = bf.load(tmp_path / "custom", model=Custom())
    assert torch.equal(loaded.predict(x).label, cert.predict(x).label)


class Bent(Custom):
    """The same parameters, and another function of them."""

    def forward(self, x):
        return self.inner(x.abs())


def test_a_file_is_only_read_into_the_network_it_was_written_from(tmp_path, monkeypatch) -> None:
    """Parameters that fit say nothing of activations, options and code between them: bounds would be a stranger's."""
    recipe = {"threat": bf.threats.Linf(1e-3), "loss": "bce", "optimizer_options": {"lr": 0.1}}
    tanh, relu = (nn.Sequential(nn.Linear(2, 3), part, nn.Linear(3, 1)).double() for part in (nn.Tanh(), nn.ReLU()))
    bf.certify(tanh, moons(20, 0), **recipe).save(tmp_path / "tanh")
    with pytest.raises(bf.BoundFlowError, match="other layers"):
        bf.load(tmp_path / "tanh", model=relu)
    bf.certify(Custom(), moons(20, 0), **recipe).save(tmp_path / "custom")
    with pytest.raises(bf.BoundFlowError, match="differs in code of the layers"):
        bf.load(tmp_path / "custom", model=Bent())
    monkeypatch.setattr("boundflow.same_program.identity.__version__", "0.0.9")  # which may read code otherwise
    with pytest.raises(bf.BoundFlowError, match="answers otherwise"):
        bf.load(tmp_path / "custom", model=Bent())


def test_layers_that_a_file_cannot_describe_are_not_rebuilt(tmp_path) -> None:
    """An option that is not in the table, and a hook: rebuilt without them it would be another network."""
    summed = nn.Sequential(nn.Unflatten(1, (1, 1, 2)), nn.AvgPool2d((1, 2), divisor_override=1), nn.Flatten())
    hooked = nn.Sequential(nn.Linear(2, 1))
    hooked[0].register_forward_hook(lambda module, inputs, output: -output)
    for number, model in enumerate((nn.Sequential(*summed, nn.Linear(1, 1)), hooked)):
        cert = bf.certify(model.double(), moons(20, 0), threat=bf.threats.Linf(1e-3), loss="bce")
        cert.save(tmp_path / str(number))
        with pytest.raises(bf.BoundFlowError, match="custom module"):
            bf.load(tmp_path / str(number))
        x, _ = moons(10, 1)
        assert torch.allclose(bf.load(tmp_path / str(number), model=model).predict(x).lower, cert.predict(x).lower)


def test_a_loaded_model_does_not_drop_anything(tmp_path) -> None:
    """Modules are made in training mode, where dropout draws at random: the plain model must not answer like that."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1)).double()
    cert = bf.certify(model, moons(20, 0), threat=bf.threats.Linf(1e-3), loss="bce")
    cert.save(tmp_path / "dropout")
    x, _ = moons(10, 1)
    assert torch.equal(bf.load(tmp_path / "dropout").nominal(x), cert.nominal(x))
    given = model.train()
    loaded = bf.load(tmp_path / "dropout", model=given)
    assert torch.equal(loaded.nominal(x), cert.nominal(x)) and given.training
    before = cert.predict(x)
    for trained in (cert.model, cert.nominal):
        trained.train()
    assert torch.equal(cert.predict(x).lower, before.lower) and torch.equal(cert.predict(x).label, before.label)
    for trained in (cert.model, cert.nominal):
        assert trained.training  # answering leaves the mode of a model alone
        trained.eval()
    given[0].weight.data.zero_()  # what becomes of the module that was given is no matter of the certificate
    assert torch.equal(loaded.nominal(x), cert.nominal(x))


def test_void_bounds_certify_nothing(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    recipe = {"optimizer_options": {"lr": 5.0}, "epochs": 400, "domain": "interval"}
    cert = bf.certify(model, moons(20, 0), threat=bf.threats.Linf(1.0), loss="hinge", **recipe)
    assert cert.void_at_step is not None and cert.model is None
    x, y = moons(10, 1)
    assert cert.accuracy(x, y).certified == 0 and not bool(cert.predict(x).certified.any())
    cert.save(tmp_path / "void")
    assert bf.load(tmp_path / "void").void_at_step == cert.void_at_step


def test_regression() -> None:
    x, _ = moons(30, 0)
    y = x[:, 0] * 0.5 + x[:, 1]
    recipe = {"optimizer_options": {"lr": 0.05}, "epochs": 5}
    cert = bf.certify(network(), (x, y), threat=bf.threats.Linf(1e-3), loss="mse", **recipe)
    prediction = cert.predict(x, epsilon=1e-3)
    assert bool((prediction.lower <= prediction.label).all()) and bool((prediction.label <= prediction.upper).all())
    with pytest.raises(bf.BoundFlowError, match="regression"):
        cert.accuracy(x, y)


def test_frozen_layers_pretraining_schedules_and_callbacks() -> None:
    model = network()
    model[0].requires_grad_(False)
    seen: list[bf.Step] = []
    cert = bf.certify(
        model,
        moons(30, 0),
        threat=bf.threats.Linf(1e-3),
        loss="bce",
        optimizer=torch.optim.Adam,
        optimizer_options={"lr": 0.05},
        schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        epochs=4,
        callbacks=[seen.append],
    )
    assert [step.number for step in seen] == [1, 2, 3, 4] and seen[-1].total == 4 and seen[-1].width > 0
    assert torch.equal(cert.nominal[0].weight, model[0].weight)
    assert bool((cert.model[0].weight.spread == 0).all()) and not isinstance(model[2].weight, bf.Bounded)
    further = bf.certify(cert.nominal, moons(30, 1), threat=bf.threats.Linf(1e-3), loss="bce")
    assert further.record["steps"] == 1


class Pair(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), x


def test_bad_input() -> None:
    x, y = moons(20, 0)
    threat = bf.threats.Linf(0.1)
    hole = x.clone()
    hole[3, 1] = float("nan")
    for message, call in {
        "labels must be": lambda: bf.certify(network(), (x, y + 1), threat=threat, loss="bce"),
        "20 inputs and 19 targets": lambda: bf.certify(network(), (x, y[:-1]), threat=threat, loss="bce"),
        "NaN": lambda: bf.certify(network(), (hole, y), threat=threat, loss="bce"),
        "no samples": lambda: bf.certify(network(), (x[:0], y[:0]), threat=threat, loss="bce"),
        "loss must be": lambda: bf.certify(network(), (x, y), threat=threat, loss="l1"),
        "domain must be": lambda: bf.certify(network(), (x, y), threat=threat, loss="bce", domain="box"),
        "epochs": lambda: bf.certify(network(), (x, y), threat=threat, loss="bce", epochs=0),
        "one output": lambda: bf.certify(network(2), (x, y), threat=threat, loss="bce"),
        "output for each class": lambda: bf.certify(network(1), (x, 0 * y), threat=threat, loss="ce"),
        "shape \\(20, 2\\)": lambda: bf.certify(network(), (x, torch.stack((1 - y, y), 1)), threat=threat, loss="bce"),
        "2 finite numbers": lambda: bf.certify(network(2), (x, y), threat=threat, loss="mse"),
        "1 finite numbers": lambda: bf.certify(network(), (x, y / 0), threat=threat, loss="mse"),
        "shape \\(20,\\)": lambda: bf.certify(
            torch.nn.Sequential(network(), torch.nn.Flatten(0)), (x, y), threat=threat, loss="bce"
        ),
        "not a tuple": lambda: bf.certify(Pair(network()), (x, y), threat=threat, loss="bce"),
        "integer images": lambda: bf.certify(network(), (x.long(), y), threat=threat, loss="bce"),
        "valid range": lambda: bf.certify(network(), (x, y), threat=bf.threats.Linf(0.1, clip=(0, 0.1)), loss="bce"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    cert = bf.certify(network(), (x, y), threat=threat, loss="bce")
    for message, call in {
        "do not fit": lambda: cert.predict(torch.zeros(4, 3)),
        "NaN or infinite": lambda: cert.predict(hole),
        "no inputs": lambda: cert.predict(x[:0]),
        "labels": lambda: cert.accuracy(x, y[:-1]),
        "radius|epsilon": lambda: cert.predict(x, epsilon=-1.0),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(bf.BoundFlowError, match="plain one"):
        bf.certify(bf.lift(network()), (x, y), threat=threat, loss="bce")


def test_batch_normalisation_with_fixed_statistics_keeps_them() -> None:
    """Put in evaluation mode it stays there; otherwise training would mix the samples, which has no rule."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 2
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    model = model.double()
    recipe = {"threat": bf.threats.Linf(0.001), "loss": "ce", "optimizer_options": {"lr": 0.1}, "epochs": 2}
    with pytest.raises(bf.UnsupportedOperator, match="eval"):
        bf.certify(model, (x, y), **recipe)
    model[1].eval()
    cert = bf.certify(model, (x, y), **recipe)
    assert torch.equal(cert.nominal[1].running_mean, model[1].running_mean)
    assert bool((cert.predict(x, 0.001).lower <= cert.nominal(x)).all())


def test_a_certificate_of_version_0_1_is_read(tmp_path: Path) -> None:
    """It answers as it did, and is written in the format of today."""
    path = Path(__file__).parents[1] / "files" / "version-0.1.safetensors"
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    answer = bf.load(path).predict(x, epsilon=0.01)
    assert answer.certified.tolist() == [True] * 12
    bf.load(path).save(tmp_path / "again")
    again = bf.load(tmp_path / "again").predict(x, epsilon=0.01)
    assert torch.equal(again.lower, answer.lower) and torch.equal(again.upper, answer.upper)


def test_a_model_without_parameters_to_train_is_refused() -> None:
    data = torch.zeros(3, 2), torch.zeros(3)
    for model in (nn.Flatten(), nn.Linear(2, 1).requires_grad_(False)):
        with pytest.raises(ValueError, match="no parameters to train"):
            bf.certify(model, data, threat=bf.threats.Linf(0.1), loss="bce")
