"""Votes of a run: members trained on parts of the data, their certificates, and what the vote stands.

    OUT/members/member-0007-2.safetensors    the certificate of member 7 for the third budget
    OUT/members/ensemble.json                the list of them, written when all are there

Sample i belongs to member i mod P. Nothing that was fitted on data that an attacker could have changed may be shared by
members: a table, whose columns are scaled by what was observed, can vote against flipped labels only. A member whose
file is there is not trained again, if it is of this run and of this part of its data (`identity.py`).
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import boundflow as bf
from boundflow.analysis.ensemble import LISTED, Vote, Whole, budgets_of, member_file, partition
from boundflow.analysis.withstanding import curve_of
from boundflow.answers.certificate import versions
from boundflow.answers.prediction import share
from boundflow.threats import AtMost
from fullcert.experiment import identity, runs
from fullcert.experiment.options import flag_of
from fullcert.experiment.training import Recipe
from fullcert.results import constant_answer
from fullcert.results.evaluation import CHUNK, FINISHED, details, essence, notes, now, subject, written
from fullcert.system.mistakes import Mistake

Tell = Callable[[str], None]


def check(recipe: Recipe) -> AtMost:
    """The threat to the members, or what keeps them from voting."""
    options, threat, count = recipe.options, recipe.threats.training, len(recipe.data.train.labels)
    if recipe.task.regression:
        raise Mistake("--members vote for classes: leave out --regression")
    if not isinstance(threat, AtMost):
        beside = [flag_of(name) for name in ("missing", "tolerance", "any_category") if getattr(options, name)]
        if beside and options.flip_labels:
            instead = ": fill them with --impute" if beside == ["--missing"] else ""
            raise Mistake(f"--members count changed samples, and {beside[0]} is about all of them{instead}")
        raise Mistake("--members needs one budget: --flip-labels, --remove, --replace, or --at-most with --epsilon")
    if recipe.task.encoding is not None and not options.flip_labels:
        raise Mistake(
            "--members of a table withstand flipped labels only: how its columns become inputs was fitted on all rows"
        )
    if options.members > count:
        raise Mistake(f"--members {options.members} exceeds the {count} training samples")
    smallest = count // options.members
    if threat.k > smallest:
        raise Mistake(f"a budget of {threat.k} exceeds the {smallest} samples of a member: use fewer --members")
    return threat


def trained(recipe: Recipe, folder: Path | None, tell: Tell, checkpoint: Callable[[], None]) -> bf.Ensemble:
    """All members for all budgets, one after the other; those of this run in the folder are not trained again."""
    threat = check(recipe)
    parts = partition(len(recipe.data.train.labels), recipe.options.members)
    budgets, members = budgets_of(threat), list[list[bf.Certificate]]()
    whole = Whole(recipe.observed())
    for number, part in enumerate(parts):
        members.append([])
        for place, budget in enumerate(budgets):
            tell(f"member {number + 1} of {len(parts)}, {budget} of its samples changed")
            path = folder / member_file(number, place) if folder is not None else None
            which = {identity.PART: part_of(number, len(parts), budget)}
            found = _read(path, recipe, which) if path is not None and path.is_file() else None
            if found is None:
                against = AtMost(budget, threat.threat) if budget else bf.threats.Linf(0.0)
                found = whole.member(recipe.certify([], rows=part.numpy(), threat=against, part=which), part)
                checkpoint()
                if path is not None:
                    path.parent.mkdir(exist_ok=True)
                    found.save(path)
            members[-1].append(found)
    ensemble = bf.Ensemble(members)
    if folder is not None:
        ensemble.write_list(folder)
    return ensemble


def part_of(number: int, count: int, budget: int) -> str:
    """The samples of a member, and how many of them it was trained for."""
    return f"samples {number} modulo {count}, {budget} of them changed"


def _read(path: Path, recipe: Recipe, which: identity.Identity) -> bf.Certificate | None:
    """A member that this run has finished; a damaged file counts as none, and so does one of another training."""
    try:
        found = bf.load(path, recipe.initial if ":" in recipe.options.model else None)
    except bf.BoundFlowError:
        return None
    if not isinstance(found, bf.Certificate):
        return None
    made = {name: found.record.get(name) for name in versions()}
    return found if found.record.get(identity.KEY) == {**recipe.identity, **which} and made == versions() else None


def votes(run: Path) -> bool:
    """Whether the run has members that vote."""
    return (run / runs.MEMBERS / LISTED).is_file()


def certificate_of(run: Path) -> Path:
    """The certificate of a run, or that of its first member: what says which inputs it takes."""
    return runs.existing(run / runs.MEMBERS, member_file(0, 0)) if votes(run) else runs.existing(run, runs.CERTIFICATE)


def opened(run: Path, model: torch.nn.Module | None = None) -> bf.Ensemble | None:
    """The ensemble of a run, if it has one."""
    if not votes(run):
        return None
    try:
        found = bf.Ensemble.load(run / runs.MEMBERS, model)
        budgets = sorted(_budget(one) for one in found.members[0])  # in the order of their training
    except (bf.BoundFlowError, ValueError, LookupError, TypeError) as error:
        raise Mistake(" ".join(str(error).split())) from None
    for number, certificates in enumerate(found.members):
        for place, one in enumerate(certificates):
            which = part_of(number, len(found.members), budgets[place]) if place < len(budgets) else None
            if one.record.get(identity.KEY, {}).get(identity.PART) != which:
                file = run / runs.MEMBERS / member_file(number, place)
                raise Mistake(f"{file} is the certificate of another member: put back the one that was trained there")
    return found


def _budget(member: bf.Certificate) -> int:
    return max([clause["budget"] or 0 for clause in member.record["clauses"]], default=0)


# --- figures ----------------------------------------------------------------------------------------------------------


class Tested:
    """The vote on the test set of a run."""

    def __init__(self, recipe: Recipe, ensemble: bf.Ensemble, tell: Tell) -> None:
        self.recipe, self.ensemble, self.k = recipe, ensemble, check(recipe).k
        x, self.true = recipe.tensors(recipe.data.test)

        def told(done: int, total: int) -> None:
            tell(f"asking member {done} of {total}")

        self.vote: Vote = ensemble.predict(x, threat=recipe.threats.test, chunk=CHUNK, tell=told)
        self.certified = self.vote.certified(self.k)
        self.right = self.vote.label == self.true

    def metrics(self, seconds: float) -> dict[str, Any]:
        """The metrics of the run."""
        options, first = self.recipe.options, self.ensemble.members[0][0]
        metrics = {
            "dataset": options.title,
            "domain": options.domain,
            "threat": repr(self.recipe.threats.training),
            "epsilon": options.epsilon,
            "test_epsilon": options.test_epsilon,
            "seed": options.seed,
            "steps": first.record["steps"],
            "recipe": self.recipe.rule,
            "members": options.members,
            "budgets": budgets_of(check(self.recipe)),
            "seconds": seconds,
            "test_samples": len(self.true),
            "nominal_accuracy": share(self.right),
            "certified_accuracy": share(self.right & self.certified),
            "certified_robustness": share(self.certified),
            "majority_accuracy": share(self.true == self.true.mode().values),
            "median_withstood": median(self.vote.withstood),
            "median_withstood_by_members": median(self.vote.by_members),
        }
        return {**metrics, "beats_constant_answer": constant_answer.beats(metrics)}

    def curve(self) -> dict[str, Any]:
        """Certified accuracy of the vote against the number of changed samples."""
        found = bf.Withstood(self.vote.label, self.vote.withstood, "k", float(self.ensemble.samples))
        return curve_of(found, self.true).as_data()

    def essence(self, metrics: dict[str, Any]) -> dict[str, Any]:
        return essence(self.recipe, SimpleNamespace(void_at_step=None), self, metrics)  # type: ignore[arg-type]

    def evaluation(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """What the report shows: the vote has neither steps nor bounds of its own."""
        first, recipe = self.ensemble.members[0][0], self.recipe
        told = details(recipe, first, curve=False)
        fixed = [pair for pair in told[0][1] if pair[0] != "data fingerprint"]
        told[0][1] = [
            *fixed,
            ["members", f"{recipe.options.members}, sample i in member i mod {recipe.options.members}"],
        ]
        return {
            "format": runs.EVALUATION_FORMAT,
            "title": recipe.options.title,
            "subject": subject(recipe),
            FINISHED: now(),
            **self.essence(metrics),
            "steps": [],
            "radii": [],
            "layers": [],
            "classes": list(recipe.task.class_names),
            "samples": self.samples(),
            "samples_left_out": 0,
            "plane": None,
            "details": told,
            "notes": [*notes(recipe, first), VOTES],
            "written": written(first),
        }

    def samples(self) -> list[dict[str, Any]]:
        """Every test sample: where it stands, the votes for its answer, and how many changes that withstands."""
        names, rows = self.recipe.task.class_names, list[dict[str, Any]]()
        origin, votes = self.recipe.task.origins.get("test"), (self.vote.members == self.vote.label.unsqueeze(1)).sum(1)
        for row in range(len(self.true)):
            place = {"row": row, **({} if origin is None else origin.of(row))}
            label = {"true": names[int(self.true[row])], "label": names[int(self.vote.label[row])]}
            withstood = int(self.vote.withstood[row])
            told = {"votes": int(votes[row]), "withstands": None if withstood < 0 else withstood}
            no_bounds: dict[str, Any] = {"margin": None, "lower": [], "upper": []}
            rows.append({**place, **label, "certified": bool(self.certified[row]), **no_bounds, **told})
        return rows


VOTES = "The answer is the vote of the members, ties going to the class that comes first; it is certified by what each \
member withstands."


def median(values: Tensor) -> int:
    """What half of the votes withstand: the lower one of the two in the middle."""
    return int(torch.quantile(values.double(), 0.5, interpolation="lower"))
