"""What is said about a network is true: each verdict is compared with what certified training really does."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import boundflow as bf
from fullcert.cli.command import main
from fullcert.cli.validate import show
from fullcert.experiment.validation import Trial, Validation, validate
from fullcert.networks.probing import FUNCTION, NO_RULE, RULE
from fullcert.system.mistakes import Mistake


class Net(nn.Module):
    """A network whose forward pass is a function of itself and the input."""

    def __init__(self, forward: Callable[["Net", Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def examined(model: nn.Module, shape: tuple[int, ...] = (4,), domain: str = "zonotope", **trial: object) -> Validation:
    return validate(model, Trial(shape, **{"outputs": 2, "loss": "ce", "optimizer": "sgd", **trial}), domain)  # type: ignore[arg-type]


def trains(model: nn.Module, shape: tuple[int, ...], domain: str) -> bool:
    """Whether the library trains it on sets, two steps."""
    x = torch.randn(4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    try:
        bf.certify(
            model, (x, torch.arange(4) % 2), threat=bf.threats.Linf(1e-6), epochs=2, order=1, domain=domain,
            optimizer_options={"lr": 0.01, "momentum": 0.9},
        )  # fmt: skip
    except (bf.BoundFlowError, RuntimeError):
        return False
    return True


def between(layer: nn.Module, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(width, 2))


def recurrence(net: Net, x: Tensor) -> Tensor:
    state = x.new_zeros(len(x), 3)
    for step in range(x.shape[1]):
        state = torch.tanh(net.inward(x[:, step]) + net.across(state))
    return net.head(state)


def attention(net: Net, x: Tensor) -> Tensor:
    q, k, v = net.q(x), net.k(x), net.v(x)
    return net.head((torch.softmax(torch.matmul(q, k.transpose(1, 2)), -1) @ v).mean(1))


class Fixed(nn.BatchNorm1d):
    """Batch normalisation that stays in evaluation mode, as the advice says."""

    def train(self, mode: bool = True) -> "Fixed":
        return super().train(False)


CERTIFIABLE = {
    "tanh": (between(nn.Tanh()), (4,)),
    "relu in place": (between(nn.ReLU(inplace=True)), (4,)),
    "dropout": (between(nn.Dropout(0.3)), (4,)),
    "layer norm": (between(nn.LayerNorm(4)), (4,)),
    "fixed batch norm": (between(Fixed(4)), (4,)),
    "images": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)), (1, 6, 6)),
    "recurrence by hand": (
        Net(recurrence, inward=nn.Linear(4, 3), across=nn.Linear(3, 3), head=nn.Linear(3, 2)),
        (3, 4),
    ),
    "attention by hand": (
        Net(attention, q=nn.Linear(4, 4), k=nn.Linear(4, 4), v=nn.Linear(4, 4), head=nn.Linear(4, 2)),
        (3, 4),
    ),
    "attention with weights": (
        Net(lambda net, x: net.head(net.a(x, x, x)[0].mean(1)), a=nn.MultiheadAttention(4, 2, batch_first=True),
            head=nn.Linear(4, 2)),
        (3, 4),
    ),
    "input changed in place": (Net(lambda net, x: net.a(x.mul_(2).add_(1)), a=nn.Linear(4, 2)), (4,)),
    "constants": (Net(lambda net, x: net.a(x) + torch.arange(2.0, dtype=x.dtype).sin(), a=nn.Linear(4, 2)), (4,)),
    "frozen": (nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.Tanh(), nn.Linear(3, 2)), (4,)),
    "own parameter": (Net(lambda net, x: net.a(x) * net.s, a=nn.Linear(4, 2), s=nn.Parameter(torch.ones(2))), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("name", CERTIFIABLE)
def test_what_can_be_certified_is(name: str, domain: str) -> None:
    model, shape = CERTIFIABLE[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = examined(model, shape, domain)
    assert found.verdict == f"This model can be certified with domain {domain}."
    assert found.certifiable and found.unsupported == () and found.notes == ()
    assert all(layer.problem(each) is None for layer in found.layers for each in ("interval", "zonotope"))
    assert trains(model, shape, domain)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def changed_view(net: Net, x: Tensor) -> Tensor:
    result = net.a(x)
    result[:, 0].mul_(2)
    return result


REFUSED = {
    "group norm": (between(nn.GroupNorm(2, 4)), (4,), "1", "native_group_norm, native_group_norm_back", "LayerNorm"),
    "batch norm": (between(nn.BatchNorm1d(4)), (4,), "1", "batch normalisation in training mode", None),
    "mish": (between(nn.Mish()), (4,), "1", "mish, mish_backward", None),
    "gelu": (between(nn.GELU("tanh")), (4,), "1", "use approximate='none'", None),
    "dropout in place": (between(nn.Dropout(0.3, inplace=True)), (4,), "1", "use inplace=False", None),
    "lstm": (
        Net(lambda net, x: net.head(net.a(x)[0][:, -1]), a=nn.LSTM(4, 3, batch_first=True), head=nn.Linear(3, 2)),
        (3, 4), "a", "recurrent layers, so they cannot be lifted; 1 operator has no rule: unsafe_split", "recurrence",
    ),
    "attention": (
        Net(lambda net, x: net.a(x, x, x, need_weights=False)[0].mean(1)[:, :2],
            a=nn.MultiheadAttention(4, 2, batch_first=True)),
        (3, 4), "a", "_scaled_dot_product", "need_weights=True",
    ),
    "maximum": (Net(lambda net, x: net.a(x) - net.a(x).max(1, keepdim=True)[0], a=nn.Linear(4, 2)), (4,), "(model)",
                "use amax", None),
    "undecided": (Net(lambda net, x: net.a(x) if (net.a(x) - net.a(x)).sum() > 0 else -net.a(x), a=nn.Linear(4, 2)),
                  (4,), None, "a question of a set .* that the bounds do not decide", None),
    "item": (Net(lambda net, x: net.a(x) / net.a(x).abs().amax().item(), a=nn.Linear(4, 2)), (4,), None,
             "a question of a set", None),
    "view": (Net(changed_view, a=nn.Linear(4, 2)), (4,), None, "changed in place under another name", None),
    "data": (Net(lambda net, x: net.a(x) * net.a.bias.data, a=nn.Linear(4, 2)), (4,), "(model)", "`.data` hides", None),
    "plain target": (Net(lambda net, x: torch.zeros(len(x), 2, dtype=x.dtype).add_(net.a(x)), a=nn.Linear(4, 2)),
                     (4,), "(model)", "would store a set in a plain tensor", None),
    "exponent": (Net(lambda net, x: torch.sigmoid(net.a(x)) ** net.p, a=nn.Linear(4, 2), p=nn.Parameter(torch.ones(2))),
                 (4,), "(model)", r"1 operator has no rule: pow.Tensor_Tensor", None),
}  # fmt: skip


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_certified_is_said_with_its_place(name: str, domain: str) -> None:
    model, shape, place, words, advice = REFUSED[name]
    found = examined(model, shape, domain)
    assert not found.certifiable and not trains(model, shape, domain)
    with pytest.raises(Mistake, match=words):
        raise Mistake(found.verdict)
    assert len(found.verdict.splitlines()) == 1
    lacking = re.search("operators? ha(s|ve) no rule: ", found.verdict)
    assert ("docs/extending.md" in found.verdict) == (lacking is not None)
    complaining = [layer for layer in found.layers if layer.problem(domain)]
    assert [layer.name for layer in complaining] == ([place] if place else [])
    if advice:
        assert advice in str(complaining[0].advice)


def test_the_advice_on_batch_norm_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = examined(between(nn.BatchNorm1d(4)), (4,), "zonotope")
    show("net.py:make_model", found, Console(width=200))
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("LayerNorm") == shown.count(".eval()") == 1
    assert found.verdict.count("LayerNorm") == 1 and found.verdict.endswith("LayerNorm.")


def test_all_operators_without_a_rule_are_listed_not_only_the_first() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Mish(), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Linear(4, 2))
    found = examined(model)
    names = {"mish", "native_group_norm", "hardswish"}
    assert set(found.unsupported) == names | {f"{name}_backward" for name in names}
    assert "6 operators have no rule: mish, " in found.verdict
    assert [layer.name for layer in found.layers if layer.problem("zonotope")] == ["1", "2", "3"]


def test_every_operator_has_a_verdict_and_a_layer() -> None:
    found = examined(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Mish(), nn.Linear(3, 2)))
    verdicts = {(layer.name, one.operator): one.verdict for layer in found.layers for one in layer.operators}
    assert verdicts["0", "aten.addmm.default"] == verdicts["3", "aten.mm.default"] == RULE
    assert verdicts["1", "F.dropout"] == verdicts["1", "aten.bernoulli_.float"] == FUNCTION
    assert verdicts["2", "aten.mish.default"] == verdicts["2", "aten.mish_backward.default"] == NO_RULE
    assert verdicts["(loss)", "F.cross_entropy"] == FUNCTION
    assert verdicts["(optimizer)", "aten.add_.Tensor"] == RULE
    assert [(layer.name, layer.kind) for layer in found.layers][:2] == [("0", "Linear"), ("1", "Dropout")]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize(("loss", "outputs"), [("ce", 3), ("bce", 1), ("hinge", 1), ("mse", 2)])
def test_every_loss_and_optimizer_can_be_certified(loss: str, outputs: int, optimizer: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, outputs))
    assert examined(model, outputs=outputs, loss=loss, optimizer=optimizer).certifiable


def test_a_decided_question_is_a_note() -> None:
    model = Net(lambda net, x: net.a(x) * 2 if (net.a(x) ** 2).sum() > -1 else net.a(x), a=nn.Linear(4, 2))
    found = examined(model)
    assert found.certifiable and "asks a question of a set" in found.notes[0] and "torch.where" in found.notes[0]
    chosen = Net(lambda net, x: torch.where(net.a(x) > 0, 2 * net.a(x), net.a(x)), a=nn.Linear(4, 2))
    assert examined(chosen).certifiable and not examined(chosen).notes


def test_a_network_too_large_for_zonotopes_is_a_note() -> None:
    model = Net(lambda net, x: F.relu(net.a(x))[:, :2], a=nn.Linear(4, 8000))
    assert "40,000 of them take at least 12 GB" in examined(model).notes[0]


def test_statistics_of_the_data_in_a_buffer_are_refused() -> None:
    def running(net: Net, x: Tensor) -> Tensor:
        net.mean = 0.5 * net.mean + 0.5 * x.detach().mean(0)
        return net.a(x - net.mean)

    model = Net(running, a=nn.Linear(4, 2))
    model.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
    found = examined(model)
    assert not found.certifiable and "makes a set of the buffer mean" in found.verdict


def test_the_random_state_is_left_alone() -> None:
    model, before = between(nn.Dropout(0.5)), torch.get_rng_state()
    examined(model)
    assert torch.equal(before, torch.get_rng_state())


# --- the command ----------------------------------------------------------------------------------------------------

FILE = """
from torch import nn

def good(features, outputs):
    return nn.Sequential(nn.Linear(features, 3), nn.Tanh(), nn.Linear(3, outputs))

def bad(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Mish(), nn.GroupNorm(2, 4), nn.Linear(4, outputs))
"""


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FILE)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fullcert", "validate", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return run


def test_a_good_model(command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = command("net.py:good", "--features", 4, "--outputs", 3)
    assert code == 0 and err == "" and out.strip().endswith("This model can be certified with domain zonotope.")
    assert "layer" in out and "Tanh" in out and "tanh_backward" in out


def test_a_bad_model_is_exit_2_with_the_table_still_there(command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = command("net.py:bad", "--shape", "2,2", "--domain", "interval")
    assert code == 2 and "GroupNorm" in out and "nn.LayerNorm" in out
    assert len(err.splitlines()) == 1 and "4 operators have no rule: mish, mish_backward, native_group_norm" in err


def test_a_network_by_name_and_json(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = command("mlp", "--features", 2, "--loss", "hinge", "--json", "-")
    found = json.loads(out)
    assert code == 0 and found["can_be_certified"] and found["outputs"] == 1 and found["unsupported"] == []
    assert found["layers"][1]["kind"] == "Tanh" and found["layers"][1]["alone"] == {"interval": None, "zonotope": None}
    code, out, err = command("net.py:bad", "--shape", "4", "--json", tmp_path / "found.json", "--quiet")
    found = json.loads((tmp_path / "found.json").read_text())
    assert code == 2 and out == "" and len(err.splitlines()) == 1
    assert not found["can_be_certified"] and len(found["unsupported"]) == 4 and found["verdict"] in err
    operators = {one["operator"]: one["verdict"] for layer in found["layers"] for one in layer["operators"]}
    assert operators["aten.mish.default"] == "no rule" and operators["aten.addmm.default"] == "rule"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("net.py:good",), "--shape 1,28,28"),
        (("net.py:good", "--features", "4", "--shape", "4"), "either"),
        (("net.py:good", "--shape", "2,-2"), "positive"),
        (("net.py:good", "--features", "0"), "positive"),
        (("net.py:good", "--features", "4", "--outputs", "0"), "--outputs"),
        (("net.py:good", "--features", "4", "--loss", "absolute"), "absolute"),
        (("net.py:good", "--features", "4", "--loss", "bce", "--outputs", "2"), "needs one output"),
        (("net.py:good", "--features", "4", "--optimizer", "lbfgs"), "lbfgs"),
        (("net.py:good", "--features", "4", "--domain", "octagon"), "octagon"),
        (("net.py:good", "--features", "4", "--json", "/nowhere/found.json"), "/nowhere"),
        (("net.py:absent", "--features", "4"), "absent"),
        (("net.py", "--features", "4"), "names no model"),
        (("transformer", "--features", "4"), "transformer"),
        ((), "model"),
    ],
)
def test_mistakes(command: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], words: str) -> None:
    code, out, err = command(*arguments)
    assert code == 2 and out == "" and len(err.splitlines()) == 1 and words in err


def test_help_has_an_example(command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = command("--help")
    assert code == 0 and "Example: fullcert validate net.py:make_model" in out.strip().splitlines()[-1]
