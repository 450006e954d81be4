"""Plant bugs in the library, one at a time, and show that the tests catch every one of them.

Run with `make mutants`, or with words of some bugs: `python tests/mutants.py "wrong end"`. Each bug is a text replacement
in a copy of the package, and the tests run against the copy until the first failure: first the test that caught the bug
the last time, which `caught_by.json` remembers, then the tests of its file, then all others. Two bugs at a time, each
with one thread. Prints each bug with the test that caught it, the count and the time; exits 1 if any bug survives, or if
one of these tests fails without a bug too, for such a test shows nothing. Nor does a bug that does not run, because a
name in it is gone: such a line is out of date.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import planting
from planting import ROOT

REMEMBERED = ROOT / "tests" / "caught_by.json"  # bug -> test; written by each run, and kept in the repository


class Mutant(NamedTuple):
    file: str
    right: str
    wrong: str
    what: str


TESTS = [  # test_NAME.py, somewhere under tests/boundflow: the order in which they find most in the least time
    "traps",
    "tensor",
    "plain_operands",
    "layout",
    "symbols",
    "states",
    "supports",
    "tripwire",
    "functions",
    "tightness",
    "laws",
    "operators",
    "training",
    "budgets",
    "predictions",
    "random_runs",
    "review",
    "programs",
    "threats",
]
FIRST = {  # where a bug in a file most likely shows: those tests go first
    "autograd_functions.py": ["traps", "threads", "review"],
    "batch_independence.py": ["batch_independence", "predictions", "budgets"],
    "bounded.py": ["traps", "tensor", "threads", "review", "budgets"],
    "certificate.py": ["predictions", "tripwire", "one_program", "certify"],
    "certificate_files.py": ["programs_with_state", "certify", "budgets", "forged_files"],
    "content.py": ["forged_files"],
    "chunks.py": ["chunks", "pieces", "budgets", "threads", "threats"],
    "memory_plan.py": ["memory_plan", "chunks"],
    "clean_state.py": ["budgets", "threats"],
    "clipping.py": ["budgets", "threats"],
    "compiled_steps.py": ["compiled"],
    "compiler.py": ["fixed_parts", "compiled"],
    "fixed_parts.py": ["fixed_parts", "compiled"],
    "traced.py": ["compiled", "many"],
    "many.py": ["many"],
    "codec.py": ["codec", "certify", "checkpoint", "budgets"],
    "cuts.py": ["predictions"],
    "derived_sets.py": ["derived_sets", "audit", "withstanding"],
    "draws.py": ["programs_with_state", "review"],
    "expansion.py": ["support", "symbols", "supports", "tightness", "traps", "training"],
    "factors.py": ["supports", "support", "budgets", "tightness"],
    "factored_support.py": ["streamed", "streaming", "budgets"],
    "forms.py": ["own_rows", "traps", "streaming", "budgets"],
    "forward_effects.py": ["programs_with_state", "review", "programs"],
    "layout.py": ["layout", "review"],
    "lift.py": ["traps", "tensor"],
    "losses.py": ["traps", "budgets", "training"],
    "one_program.py": ["one_program"],
    "operands.py": ["states", "traps", "tensor", "budgets"],
    "products_of_deviations.py": ["products_of_deviations"],
    "kept_lines.py": ["kept_lines"],
    "late_checks.py": ["kept_lines"],
    "progress.py": ["modes", "progress"],
    "prepared.py": ["modes", "programs_with_state", "budgets", "threats"],
    "recipe.py": ["checkpoint", "certify"],
    "reduction.py": ["reduction", "symbols", "tightness", "traps", "training"],
    "symbol_numbers.py": ["symbols", "progress", "review", "traps", "certify"],
    "rounding.py": ["traps", "laws", "withstanding", "compiled"],
    "prediction.py": ["predictions", "tightness"],
    "rows.py": ["rows", "own_rows", "tightness", "traps", "budgets", "training"],
    "sample_axis.py": ["rows", "budgets", "states", "traps"],
    "sets.py": ["states", "traps", "tensor", "waiting_sets", "budgets"],
    "states.py": ["states", "budgets"],
    "streaming.py": ["streaming", "budgets"],
    "training_state.py": ["programs_with_state", "checkpoint"],
    "step_state.py": ["compiled_zonotopes"],
    "support.py": ["supports", "rows", "withstanding", "budgets", "threats"],
    "symbols.py": ["symbols", "progress", "review", "traps", "training"],
    "budgets.py": ["rows", "support", "supports", "budgets", "rounded_moves", "threats"],
    "written_code.py": ["digests"],
    "training.py": ["modes", "tripwire", "one_program", "programs_with_state", "review", "layout"],
    "ranks.py": ["shares", "several_devices"],
    "shares.py": ["shares", "several_devices"],
    "interval_pieces.py": ["several_devices"],
    "shared_checkpoint.py": ["several_devices"],
    "largest_budgets.py": ["withstanding"],
    "smaller_threats.py": ["withstanding"],
    "withstanding.py": ["withstanding", "votes"],
    "optimum/branching.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/changes.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/fitting.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/linearised.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/logit_bounds.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/logit_losses.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/ranges.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "optimum/training_rows.py": ["exact", "refits", "branching", "refusals_at_the_optimum"],
    "votes.py": ["votes"],
    "ensemble.py": ["votes"],
    "tripwire.py": ["tripwire", "programs"],
    "rules/descent.py": ["products_of_sets", "compiled"],
    "rules/linear.py": ["sums_of_sets", "laws"],
    "rules/sums_over_samples.py": ["sums_of_sets", "laws"],
    "rules/pooling.py": ["sums_of_sets", "laws"],
    "rules/bilinear.py": ["operators", "budgets", "threats"],
    "rules/contractions.py": ["operators", "review", "budgets", "threats"],
    "rules/products_over_samples.py": ["budgets", "threats"],
    "rules/constants.py": ["tensor", "plain_operands", "operators"],
    "rules/convolution.py": ["convolution", "traps", "operators"],
    "rules/corners.py": ["predictions"],
    "rules/products.py": ["traps", "states", "laws", "budgets"],
    "rules/functions.py": ["functions"],
    "rules/gates.py": ["states", "review", "operators", "budgets", "threats"],
    "rules/normalisation.py": ["traps", "operators"],
    "rules/randomness.py": ["layout", "review"],
    "rules/selections.py": ["operators"],
    "rules/softmax.py": ["softmax_of_sets", "waiting_sets", "traps", "operators"],
    "rules/upper_products.py": ["upper_products"],
    "rules/unary.py": ["functions", "budgets", "threats"],
    "threats/base.py": ["interface", "budgets", "threats"],
    "threats/deviation.py": ["rounded_moves", "interface"],
    "verified_rows.py": ["smaller_sets", "verified_rows", "filled_categories"],
    "threats/lifting.py": ["rounded_moves", "interface", "filled_categories", "budgets", "traps", "threats"],
    "threats/moves.py": ["rounded_moves", "interface", "withstanding", "budgets", "threats"],
    "threats/quantised.py": ["rounded_moves", "interface"],
}

# fmt: off
# file, right, wrong, what is wrong
MUTANTS = [Mutant(*row) for row in [
    ("rounding.py", "amount = (2 * n + 8) * unit(dtype)", "amount = 0.0 * unit(dtype)", "no allowance for sums"),
    ("rounding.py", "return torch.addcmul(bounds, _signs(bounds.dim(), bounds.dtype, bounds.device), amount, value=factor)", "return torch.addcmul(bounds, _signs(bounds.dim(), bounds.dtype, bounds.device), amount, value=-factor)", "bounds widened inwards"),
    ("rounding.py", "return torch.nextafter(bounds, _infinities", "return torch.nextafter(bounds, -_infinities", "one step inwards"),
    ("rounding.py", "return center, _farther(lower, upper, center)", "return center, up(upper - lower) * 0.49", "radius of a ball too small"),
    ("rounding.py", 'if torch.get_float32_matmul_precision() != "highest":', "if False:", "reduced precision not refused"),
    ("sets.py", "rounding.around(center, rounding.up(reach + radius))", "rounding.around(center, rounding.up(reach))", "radius missed when bounds are read off a form"),
    ("forms.py", "return total * (1 + rounding.gamma(len(self.rows), total.dtype))", "return total * 0.5", "reach of a form too small"),
    ("bounded.py", "target._recorded = target._version + 1", "target._recorded = target._version + 2", "wrong version after an in-place operator"),
    ("bounded.py", "if self._version != self._recorded:\n            raise StaleAlias", "if False:\n            raise StaleAlias", "aliases not noticed"),
    ("bounded.py", "if not isinstance(target, Bounded):\n        raise", "if not isinstance(target, Bounded):\n        return rule.operator(*(getattr(x, 'center', x) for x in args), **kwargs)\n        raise", "plain targets not refused"),
    ("sets.py", "elif not (least.item() >= 0 and most.item() < math.inf):", "elif False:", "void and crossed bounds not noticed"),
    ("budgets.py", "return (x.abs_() if spent else x.abs()).sum(dim)", "return x.sum(dim)", "absolute value dropped in the support"),
    ("reduction.py", "boxed = rounding.up(radius + lost)", "boxed = rounding.up(lost)", "radius dropped in a reduction"),
    ("reduction.py", "part = stacked[begin : begin + size].index_select(1, kept)", "part = stacked[begin : begin + size, : len(kept)].clone()", "rows moved together without regard to which are kept"),
    ("rules/softmax.py", "return rows - (rows * p).sum(-1, keepdim=True)", "return rows", "slopes of softmax without the other classes"),
    ("reduction.py", "boxed = rounding.up(radius + lost)", "boxed = rounding.up(radius)", "dropped rows lost in a reduction"),
    ("reduction.py", "generators[:, len(kept) :].diagonal().copy_(boxed)", "generators[:, len(kept) :].diagonal().copy_(boxed.roll(1))", "fresh rows on the wrong scalars"),
    ("reduction.py", "generators[:, len(kept) :].diagonal().copy_(boxed)", "generators[:, len(kept)].copy_(boxed)", "scalars share a fresh symbol"),
    ("rows.py", "out[self.positions(part, out.device)] = generators", "out[: len(generators)] = generators", "rows matched by position"),
    ("reduction.py", "new = form.radius.flatten().diag()", "new = 0.5 * form.radius.flatten().diag()", "promotion halves the radius"),
    ("rules/linear.py", "return bounds if coefficient >= 0 else bounds.flip(0)", "return bounds", "ends not swapped for a negative coefficient"),
    ("rules/linear.py", "radius = torch.add(radius, x.form.radius, alpha=abs(a))", "radius = torch.add(radius, x.form.radius, alpha=a)", "absolute value dropped in a combination"),
    ("rules/linear.py", "total[where].add_(added, alpha=factor)", "total[where].add_(added)", "coefficient missed on the rows"),
    ("rules/linear.py", "return Set(-x.bounds.flip(0), form,", "return Set(-x.bounds, form,", "neg does not swap the ends"),
    ("rules/sums_over_samples.py", "total = f(radius + rounding.gamma(terms, radius.dtype) * form.modulus, 0)", "total = f(radius, 0)", "rounding of sums missed in the form"),
    ("rules/linear.py", "if remembered is not None and remembered.parameter is x:", "if remembered is not None:", "a stale sum is used for weight decay"),
    ("rules/constants.py", "bounds = rounding.outward(convert(x.bounds, 1))", "bounds = convert(x.bounds, 1)", "conversion to float32 not rounded outwards"),
    ("rules/bilinear.py", "radius = radius + both + f(first.radius, second.center.abs())", "radius = radius + f(first.radius, second.center.abs())", "second-order term missed"),
    ("rules/bilinear.py", "radius = radius + both + f(first.radius, second.center.abs())", "radius = radius + both + f(first.radius, second.center)", "absolute value dropped in a product"),
    ("rules/bilinear.py", "radius = upper_product(f, center_a.abs() + radius_a, inner).add_(upper_product(f, radius_a, modulus_b))", "radius = upper_product(f, center_a.abs(), inner).add_(upper_product(f, radius_a, modulus_b))", "product of the radii missed"),
    ("rules/contractions.py", "ends = broadcast(bias.bounds, center.dim())", "ends = broadcast(bias.bounds.mean(0, keepdim=True).expand(2, *bias.shape), center.dim())", "radius of the bias missed"),
    ("rules/products.py", "return hull(f(broadcast(a.bounds, dims).unsqueeze(1), broadcast(b.bounds, dims).unsqueeze(0)), (0, 1))", "return f(broadcast(a.bounds, dims), broadcast(b.bounds, dims))", "two corners instead of four"),
    ("rules/products.py", "if isinstance(a, Set) and a is b:\n        return square(a)", "if isinstance(a, Set) and isinstance(b, Set) and a.shape == b.shape:\n        return square(a)", "any two sets of one shape are a square"),
    ("rules/products.py", "torch.where(straddles, 0.0, smallest)", "smallest", "square misses its minimum"),
    ("rules/unary.py", "most = torch.maximum(most, offset + missed)", "most = torch.maximum(most, offset - missed)", "sign of the slack"),
    ("rules/unary.py", "if sign > 0:\n            least", "if sign < 0:\n            least", "convex and concave mixed up"),
    ("rules/functions.py", "moduli=lambda x, y: x,\n", "moduli=lambda x, y: y,\n", "gelu cancels"),
    ("rules/functions.py", "extra=math.exp(-threshold) / beta,", "extra=0.0,", "softplus above its threshold"),
    ("rules/unary.py", "total = slope.abs() * (own + charge * form.modulus) + delta + charge * mu.abs()", "total = slope.abs() * (own + charge * form.modulus) + 0.5 * delta", "half of the relaxation error"),
    ("rules/unary.py", "y = y.flip(0)\n", "pass\n", "decreasing functions keep their ends"),
    ("rules/gates.py", "return _condition(xl > yu, xu <= yl, x, y)", "return _condition(xl > yl, xu <= yl, x, y)", "a gate decided too early"),
    ("rules/gates.py", "doubt * modulus)", "doubt * view.deviation)", "an undecided gate misses the center"),
    ("rules/gates.py", "return Set(~_truth(x, x.dim()).flip(0), None, x.symbols)", "return Set(~_truth(x, x.dim()), None, x.symbols)", "not does not swap the ends"),
    ("rules/selections.py", "torch.stack((low > others, high >= low.amax(-1, keepdim=True)))", "torch.stack((low > others, high > high.mean(-1, keepdim=True)))", "possible maxima missed"),
    ("rules/selections.py", "return form.radius + off + rounding", "return form.radius + rounding", "others may exceed the chosen entry"),
    ("rules/linear.py", "rest = selected(x, lambda v, lead: v.clone()) if x.exact else x", "rest = x", "a plain gradient is looked at again after it was written to"),
    ("rules/constants.py", "if source.exact:  # its memory", "if False:  # its memory", "a set shares the memory of a plain tensor that was copied into it"),
    ("rules/selections.py", "forms = [composed.form, composed.untouched.form]", "forms = [composed.untouched.form, composed.untouched.form]", "the touched state of a maximum taken for the clean one"),
    ("rules/softmax.py", "off = rounding.deviation(softmax_bounds(view.bounds), p)", "off = rounding.deviation(softmax_bounds(over.views[-1][0].bounds), p)", "slopes of log_softmax taken where samples were left alone"),
    ("rules/products.py", "over.middle([_times_itself(view.deviation) for (view,) in over.views])", "over.middle([over.views[-1][0].deviation.square() for _ in over.views])", "the square of a touched sample moves as far as that of a clean one"),
    ("states.py", "return [torch.maximum(d, rounding.up(up - middle)) for d, up in zip(down, above, strict=True)]", "return [0.5 * up for up in above]", "one middle for all states taken for the middle of each"),
    ("rules/softmax.py", "return others_against(high, low), others_against(low, high)", "return others_against(high, high), others_against(low, low)", "softmax with all logits at one end"),
    ("rules/softmax.py", "off = torch.maximum(largest_j - jacobian, jacobian - smallest_j).clamp_min(0.0)", "off = torch.zeros_like(jacobian)", "second-order term of softmax missed"),
    ("rules/softmax.py", "return half * torch.minimum(of_all, around_own), half * (1 - low) * deviation * deviation", "return half * torch.minimum(of_all, around_own), half * (1 - low) * deviation * deviation * 0.2", "errors of softmax upwards a fifth of what they are"),
    ("rules/softmax.py", "return half * torch.minimum(of_all, around_own), half", "return 0.2 * half * torch.minimum(of_all, around_own), half", "errors of softmax downwards a fifth of what they are"),
    ("rules/softmax.py", "linear = Linear(p + middle, p *", "linear = Linear(p - middle, p *", "middle of the errors of softmax on the wrong side"),
    ("rules/upper_products.py", "MISSED = 2.0**-13", "MISSED = 0.0", "digits that bfloat16 does not have are missed"),
    ("rules/upper_products.py", "rounding.of_ours(2 * x.shape[1], torch.float32)", "0.0", "sums of matrix units taken for exact"),
    ("batch_independence.py", "return type(module) in ONE_BY_ONE and as_made", "return type(module) in ONE_BY_ONE", "hooks of layers overlooked where samples may meet"),
    ("support.py", "return len(self.space.table), *self.space.budgets", "return (len(self.space.table),)", "columns sorted for another budget"),
    ("losses.py", "return mul(as_set(grad), slope), for_targets, None\n\n\ndef _bce_bounds", "return slope, for_targets, None\n\n\ndef _bce_bounds", "upstream gradient ignored"),
    ("losses.py", "at = torch.stack((low, high, torch.logit(y.clamp(0, 1)).clamp(low, high)))", "at = torch.stack((low, high, low))", "soft labels taken as monotone"),
    ("losses.py", "total = own.sum()", "total = (own != 0).sum().to(own.dtype)", "class weights missing in the divisor"),
    ("rules/convolution.py", "    (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),\n", "", "convolutions by NNPACK"),
    ("rules/convolution.py", "if self._inside == 0:\n                for", "if True:\n                for", "a thread hands the libraries back while another convolves"),
    ("rules/sums_over_samples.py", "* moduli + rounding.tiny(terms, x.dtype)", "* moduli", "terms of a mean over samples that underflow forgotten"),
    ("rules/pooling.py", "_planes(f, 2), terms, along=along, divides=True)\n\n\n@rule(aten._adaptive_avg_pool2d.default", "_planes(f, 2), terms, along=along)\n\n\n@rule(aten._adaptive_avg_pool2d.default", "shares of a window that underflow forgotten"),
    ("rules/linear.py", "* moduli + rounding.tiny(terms, like.dtype)", "* moduli", "two products that underflow pay for one"),
    ("rules/descent.py", "* moduli + rounding.tiny(terms, x.dtype)", "* moduli", "products of a traced update that underflow forgotten"),
    ("rules/linear.py", "[(_moduli(x, like, dims), a) for x, a in charged]", "[(_ends(x, a, like, dims), a) for x, a in charged]", "rounding charged at the wrong end"),
    ("rules/softmax.py", "low, high = softmax_bounds(torch.stack((torch.minimum(x.bounds[0], center), torch.maximum(x.bounds[1], center))))", "low, high = softmax_bounds(x.bounds)", "slopes of softmax not on the way from the center"),
    ("symbols.py", "return self.threat is None and given_out == 0", "return self.threat is None", "spaces without a threat share rows"),
    ("autograd_functions.py", "if torch.is_grad_enabled():\n            raise", "if False:\n            raise", "second derivatives lose terms"),
    ("rules/normalisation.py", "(1 + rounding.gamma(8 * terms, x.dtype)) * (1 + float(loss.max()))", "0.999", "layer norm clamped below what rounding allows"),
    ("lift.py", "made = exact(parameter.detach().clone(), symbols)", "made = exact(parameter.detach(), symbols)", "a lifted parameter follows the old storage"),
    ("lift.py", "return center, torch.where(amount > 0, rounding.around(center, amount), center)", "return center, torch.stack((center - amount, center + amount))", "edge of the ball not rounded outwards"),
    ("rounding.py", "return outward(center + signs * (radius * _lengthening(center.dtype)))", "return torch.stack((center - radius, center + radius))", "edge of the ball of one radius not rounded outwards"),
    ("threats/lifting.py", "return self.symbols.of_samples(self.samples, self._fingerprints(), np.array(parts), meaning, still)", "return self.symbols.of_samples(np.arange(len(self.samples)), self._fingerprints(), np.array(parts), meaning, still)", "symbols by position in the batch"),
    ("threats/lifting.py", "parts.append(~reached.cpu())", "parts.append(reached.cpu())", "symbols of missing values taken for one another"),
    ("threats/lifting.py", "nothing, missing.astype(np.float64)", "nothing, 2 * missing.astype(np.float64)", "a category that was filled in is only half there"),
    ("verified_rows.py", "(ones != 1) | (ones + zeros != size)", "(ones > 1) | (ones + zeros != size)", "a category that was filled in by none of its columns counts as the stand-in"),
    ("derived_sets.py", "lines = [rows.place(", "lines = [0.999999 * rows.place(", "a set that is asked through derived symbols is a little smaller"),
    ("derived_sets.py", "form.radius, Rows(", "0.0 * form.radius, Rows(", "a set that is asked through derived symbols has lost its radius"),
    ("threats/missing_categories.py", "device=values.device) - self.level", "device=values.device) / 2 - self.level", "a missing category that is never wholly one of them"),
    ("expansion.py", "                total[:, deep] += added", "                pass", "known rows lost in an expansion"),
    ("expansion.py", "total.index_add_(1, deep, added)", "pass", "known rows that do not follow each other lost in an expansion"),
    ("support.py", "return coefficients.scatter_add_(1, torch.where(known, places, 0), own)", "return coefficients", "own rows lost in the support"),
    ("support.py", "if self.all_known:", "if True:", "own rows of unseen samples lost in the support"),
    ("reduction.py", "weights = generators.div_(torch.where(scale > 0, scale, 1.0).unsqueeze(1))", "weights = generators.div_(torch.where(scale > 0, 2 * scale, 1.0).unsqueeze(1))", "expansion of derived symbols halved"),
    ("operands.py", "agree = all(x.along == along for x in marked)", "agree = all(x.along is not None and x.along.samples is along.samples for x in marked)", "own rows on different axes mixed"),
    ("operands.py", "if agree and apart and along.fits(shape):", "if agree and apart:", "own rows spread along their axis"),
    ("sample_axis.py", "if bool((moved == positions.view(self._line(moved.dim(), axis, size))).all()):", "if moved.shape[axis] == size:", "the sample axis taken for any axis of its length"),
    ("rules/products_over_samples.py", "first, second = (y.center, own) if flipped else (own, y.center)", "first, second = (0 * y.center, own) if flipped else (own, y.center)", "own rows of one factor lost in a sum over samples"),
    ("rules/contractions.py", "if sample_axis(a) == -2 and sample_axis(b) is None:", "if sample_axis(a) == -2:", "own rows of both factors kept"),
    ("budgets.py", "return (-_extreme(coefficients, torch.amin)).clamp_min(0.0), _extreme(coefficients, torch.amax).clamp_min(0.0)", "return _extreme(coefficients, torch.amax).clamp_min(0.0), (-_extreme(coefficients, torch.amin)).clamp_min(0.0)", "one-sided symbols the wrong way round"),
    ("budgets.py", "by_owner = torch.stack([side[end] for side in ends]).sum(0) if len(ends) > 1 else ends[0][end]", "by_owner = ends[0][end]", "only the first part of a clause counted"),
    ("budgets.py", "terms, count = few_largest(terms, budget, dim), budget", "terms, count = few_largest(terms, max(1, budget - 1), dim), budget", "one touched sample too few"),
    ("budgets.py", "place = torch.where(known[place] == self.samples, place, len(known))", "place = torch.full_like(place, len(known))", "an owner split in two"),
    ("budgets.py", "both = coefficients.abs().amax(-1)", "both = coefficients.amax(-1).clamp_min(0.0)", "l1 balls taken for one-sided"),
    ("sample_axis.py", "if distinct < self.count:", "if False:", "a sample that occurs twice counted as two"),
    ("clean_state.py", "rounding.up(self.radius + 0.5 * (down + up))", "rounding.up(self.radius)", "touched samples missed in a radius"),
    ("clean_state.py", "torch.stack((clean[1] - touched[0], touched[1] - clean[0]))", "torch.stack((clean[0] - touched[0], touched[1] - clean[1]))", "a touched sample compared with the near end of its clean interval"),
    ("clean_state.py", "center = form.center + middle\n", "center = form.center\n", "the center stays where the errors do not"),
    ("sets.py", "inner = _in_order(clean.bounds.clamp_min(0.0) if nonnegative else clean.bounds)", "inner = _intersection(clean.bounds, bounds)", "a clean interval cut by the touched one"),
    ("clean_state.py", "if clean and part in samples.zero_when_clean]", "if clean]", "rows of what every sample may change cleared"),
    ("rules/products.py", "(a, b), along = own_axis(a, b)\n    over = States(a, b, *others)", "over = States(a, b, *others)\n    (a, b), along = own_axis(a, b)", "own rows that were written out taken for those of everything else"),
    ("sets.py", "form.radius.maximum(clean.radius)", "form.radius", "a form that does not hold the clean sample"),
    ("clean_state.py", "self.rows[numbers] *= ~where", "self.rows *= ~where", "all own rows cleared"),
    ("clean_state.py", "beyond = torch.cat([part.beyond for part in parts], 1)", "beyond = torch.cat([part.beyond for part in parts[:1] * len(parts)], 1)", "excess of later pieces lost"),
    ("batch_independence.py", "parameter.copy_(torch.nan_to_num(parameter, 0.0, 0.0, 0.0).clamp(-1e3, 1e3) + moved.to(parameter))", "pass", "a head of zeros hides what mixes samples"),
    ("clipping.py", "radius = rounding.up(largest + bounds.abs().amax(0) + form.radius)", "radius = rounding.up(form.radius)", "replaced gradients not in the form"),
    ("clipping.py", "return torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)", "return gradient", "gradients that overflow"),
    ("rules/unary.py", "both = [(torch.maximum(inner, outer), inner) for inner, outer in errors]", "both = [(inner, inner) for inner, outer in errors]", "the line of clean samples taken for touched ones"),
    ("rules/unary.py", "errors = [list(of_line.unbind(0)) for of_line in found.unbind(0)]", "errors = [list(of_interval.unbind(0)) for of_interval in found.unbind(1)]", "errors of both lines on one interval taken for those of one line on both"),
    ("sets.py", "and math.isfinite(bounds.sum().item())", "and not math.isnan(bounds.sum().item())", "infinite ends pass where only overflow is looked for"),
    ("sets.py", "        check = Check.EVERYTHING\n", "        check = check\n", "crossed bounds of an intersection pass where ends were in order"),
    ("rules/constants.py", "(float(x).is_integer() and abs(x) < 256)", "(float(x).is_integer() and abs(x) < 2**60)", "whole numbers taken for exact that the dtype does not hold"),
    ("layout.py", "return ((0,) * len(args[1]),) if not args[0].dim() else _asked_once(func, args, kwargs)", "return ((0,) * len(args[1]),)", "every expanded tensor laid out as one number"),
    ("rules/gates.py", "return [torch.maximum(*found), found[1]] if len(found) > 1 else found", "return [found[1], found[1]] if len(found) > 1 else found", "gates of clean samples taken for touched ones"),
    ("rules/products_over_samples.py", "beyond = torch.stack((clean[0] - touched[0], touched[1] - clean[1])).clamp_min(0.0)\n        radius", "beyond = torch.stack((clean[0] - touched[0], clean[1] - touched[1])).clamp_min(0.0)\n        radius", "touched samples never reach up"),
    ("threats/moves.py", "rows = rounding.up(amounts.to(values.dtype))", "rows = rounding.deviation(bounds, center)", "a valid range shortens a ball"),
    ("threats/moves.py", "bounds, rounding.of_moves(values, rows))", "bounds)", "roundings of moves in a ball forgotten"),
    ("threats/deviation.py", "None if self.radius is None else torch.where(mask, self.radius, 0.0),", "None,", "roundings of some samples' moves forgotten"),
    ("threats/lifting.py", "total = torch.stack(radii).sum(0) if radii", "total = radii[0] if radii", "roundings of the first change alone"),
    ("threats/quantised.py", "return distance + rounding.of_grid(x, distance) if bins", "return distance + 0.0 * x.double() if bins", "points of a grid written without rounding"),
    ("threats/moves.py", "if not budgeted and self.kind is Kind.BOX and self.samples is None:", "if self.kind is Kind.BOX:", "recentred under a budget"),
    ("threats/base.py", "return (Clause(self.k, self.threat.changes),)", "return (Clause(max(1, self.k - 1), self.threat.changes),)", "a budget of one less"),
    ("sets.py", "if self.along is None:\n            return self", "if self._form is None or self._form.along is None:\n            return self", "clean states survive a mix of positions"),
    ("sets.py", "self.clean = None  # one sample axis", "pass  # one sample axis", "clean for the samples of another batch"),
    ("factors.py", "total = self._second(center).view(len(center), width, -1)", "total = 0 * self._second(center).view(len(center), width, -1)", "one factor lost in a support"),
    ("factors.py", "total = (total - mean.unsqueeze(1)).mul_(p.unsqueeze(2))", "total = (total - mean.unsqueeze(1)).mul_(0.5 * p.unsqueeze(2))", "slopes of softmax halved in a support by factors"),
    ("factors.py", "error = p * (off + (p * off).sum(1, keepdim=True))", "error = 0 * off", "roundings of a softmax of a product by its factors"),
    ("budgets.py", "return (-coefficients[..., 0]).clamp_min(0.0), coefficients[..., 0].clamp_min(0.0)", "return coefficients[..., 0].clamp_min(0.0), (-coefficients[..., 0]).clamp_min(0.0)", "up for down where a sample has one symbol"),
    ("losses.py", "certain = weight is None and isinstance(target, Bounded) and target.set.adds_to_one", "certain = target.is_floating_point() or (isinstance(target, Bounded) and target.set.adds_to_one)", "targets taken to add up to one"),
    ("rules/corners.py", "weights = torch.where(up, least, torch.where(down, most, middle))", "weights = torch.where(up, most, torch.where(down, least, middle))", "weights at the wrong end"),
    ("rules/corners.py", "torch.where(down, most, middle)", "torch.where(down, least, middle)", "negative inputs taken for positive ones"),
    ("rules/corners.py", "doubt = (unsigned @ half) * (1 + charge) + charge", "doubt = charge", "columns without a sign cost nothing"),
    ("rules/corners.py", "charge * (modulus @ b.bounds.abs().amax(0))", "0.0 * modulus.sum()", "products at the ends round for free"),
    ("rules/corners.py", "weights), spread + doubt", "weights), doubt", "the spread of inputs forgotten at the ends"),
    ("cuts.py", "return torch.cat((lower, upper), 1)", "return torch.cat((lower, lower), 1)", "the upper half of a box forgotten"),
    ("cuts.py", 'leads = reduced(self.leads, first[2], "amin", torch.inf)', 'leads = reduced(self.leads, first[2], "amax", -torch.inf)', "the best part speaks for the whole"),
    ("cuts.py", 'lower = reduced(self.lower, first[0], "amin", torch.inf)', 'lower = reduced(self.lower, first[0], "amax", -torch.inf)', "the highest of the lower ends"),
    ("cuts.py", "kept[undecided[going_on]] = False", "kept[undecided] = False", "parts of hopeless inputs dropped"),
    ("batch_independence.py", "if before.shape != after.shape or not torch.equal(before[:, others], after[:, others]):", "if before.shape != after.shape:", "inputs that meet are cut apart"),
    ("certificate.py", "self.nominal(threat.observed(x).clone())", "self.nominal(threat.observed(x))", "inputs written over before they are lifted"),
    ("symbol_numbers.py", "self.count += len(parts)\n", "self.count += len(parts) // each\n", "test inputs get numbers that were handed out before"),
    ("symbol_numbers.py", "places = np.arange(self.count, self.count + len(parts))", "places = np.arange(max(0, self.count - 1), max(0, self.count - 1) + len(parts))", "the last number is handed out again"),
    ("symbol_numbers.py", "if (found[1] if found is not None else unseen.setdefault(sample, fingerprint)) != fingerprint:", "if unseen.setdefault(sample, fingerprint) != fingerprint:", "a sample's symbols mean other values in a later batch"),
    ("symbols.py", "first = ANSWERED * (1 + self._looking.registry.first // ANSWERED)", "first = self._looking.registry.first", "the space of an answer shares numbers with its parent"),
    ("symbols.py", "first = ANSWERED * (1 + self._looking.registry.first // ANSWERED)", "first = ANSWERED", "an answer within an answer shares numbers with it"),
    ("symbols.py", 'names = ("_aside", "steps", "_counted", "_expansions", "expansion")', 'names = ("_aside", "steps", "_counted", "_expansions")', "what somebody derived while looking at a run stays in it"),
    ("symbols.py", "return (self._looking if self._aside else self._ledger).registry.free(count, part)", "return self._ledger.registry.free(count, part)", "looking at a run changes its numbers"),
    ("symbols.py", "if bool(((numbers < space._looking.registry.first) & (parts >= space._inherited)).any()):", "if False:", "parts of a younger threat taken for those of an answer"),
    ("symbols.py", "several = len(self._optimizers) > 1", "several = False", "the symbols of an optimizer's last step are forgotten before another uses them"),
    ("expansion.py", "return Expansion(Rows(numbers), deep, torch.cat(weights).contiguous())", "return Expansion(Rows(numbers), deep, torch.cat(weights[::-1]).contiguous())", "derived symbols of one optimizer stand for those of another"),
    ("support.py", "if found is not None and found[0]() is expansion and found[1] == told:", "if found is not None and found[1] == told:", "columns sorted for an older expansion"),
    ("support.py", "= ref(expansion), told, columns", "= (lambda: expansion), told, columns  # type: ignore[assignment]", "a support holds every expansion there ever was"),
    ("support.py", "return torch.stack(both[::-1])", "return torch.stack(both)", "the reach of clean samples taken for that of touched ones"),
    ("states.py", "self.views.append(tuple(x.untouched if isinstance(x, Set) else x for x in operands))", "self.views.append(operands)", "samples that were left alone are bounded as touched ones"),
    ("states.py", "self.views.append(tuple(x.untouched if isinstance(x, Set) else x for x in operands))", "self.views = [tuple(x.untouched if isinstance(x, Set) else x for x in operands)] * 2", "touched samples are bounded as those that were left alone"),
    ("operands.py", "if any(only_touched(x) for x in operands):\n        return None\n    along", "along", "own rows without a clean state taken for clean"),
    ("rules/gates.py", "if kept and not isinstance(condition, Set) else None", "if kept else None", "a condition on sets decided the same where a sample was left alone"),
    ("rules/products.py", "return x.without_clean()", "return x", "a divisor that may be zero where a sample was left alone"),
    ("rules/convolution.py", "apart = torch.unflatten(result, out, (groups_out, len(rows), -1))", "apart = torch.unflatten(result, out, (len(rows), groups_out, -1)).transpose(out, out + 1)", "rows of a kernel taken out of the wrong group"),
    ("rules/randomness.py", "mask = function(plain_ones(x), p, True)", "mask = function(torch.ones(x.shape, dtype=x.dtype, device=x.device), p, True)", "masks drawn in another order of memory"),
    ("layout.py", "return tuple(_unless_contiguous(x) if isinstance(x, Tensor) else None for x in results)", "return tuple(None for x in results)", "every result taken for contiguous"),
    ("draws.py", "self._generators[device] = torch.Generator(device).manual_seed(self.seed)", "self._generators[device] = torch.Generator(device)\n            self._generators[device].seed()", "plain training draws other numbers than training on sets"),
    ("training.py", "draws = Draws(recipe.seed_of_step(number))", "draws = Draws(recipe.seed_of_step(0))", "the same mask in every step"),
    ("training.py", "with draws.over() if draws is not None else nullcontext(), torch", "with nullcontext(), torch", "masks of the backward pass drawn anew"),
    ("training.py", "if not self.program.is_new(index):", "if True:", "no rehearsal"),
    ("training.py", "if not self.program.is_new(index):", "if number:", "no rehearsal of a batch of another length"),
    ("one_program.py", "if self._generators() == before:", "if before:", "nobody looks who draws"),
    ("one_program.py", "if _differ(value, other):", "if _differ(value, value):", "rates of both runs are not compared"),
    ("one_program.py", "        changed = self._changed_code()\n", "        changed = None\n", "code that counts elsewhere is not noticed"),
    ("one_program.py", "return Draws(0).over(OPTIMIZER) if self.drawn else nullcontext()", "return nullcontext()", "an optimizer may begin to draw"),
    ("training.py", "self.tripwire.step(number + 1)\n", "pass\n", "no tripwire in training"),
    ("tripwire.py", "return ((lower <= value) & (value <= upper)).all()", "return ((lower <= value) | (value <= upper)).all()", "a tripwire that looks at one end only"),
    ("tripwire.py", "inside = ((lower <= plain) & (plain <= upper)) | unknown\n    if not bool(inside.all()):", "inside = ((lower <= plain) & (plain <= upper)) | unknown\n    if not bool(inside.any()):", "answers outside their bounds pass if one lies inside"),
    ("certificate.py", "for some in asked if", "for some in () if", "no rehearsal of answers"),
    ("certificate.py", "require_settled(self.nominal, x[:size])", "pass", "answers for another number of inputs are not tried"),
    ("written_code.py", ", *_put_there(cls)]", "]", "methods that were put into classes of a library"),
    ("certificate_files.py", "(*model.named_parameters(), *model.named_buffers()) if model is not None", "model.named_parameters() if model is not None", "buffers that are sets written as their plain values"),
    ("certificate_files.py", "require(not outward or inside.all(), ", "require(True, ", "forged files: the plain model outside its bounds"),
    ("content.py", "require((bounds[0] <= bounds[1]).all(), ", "require(True, ", "forged files: crossed bounds are read"),
    ("content.py", 'require((tensors["radius"] >= 0).all(), ', "require(True, ", "forged files: a negative radius is read"),
    ("content.py", "require(symbols is not None and symbols.knows(numbers), ", "require(True, ", "forged files: rows of no symbol are read"),
    ("content.py", "require(apart.all(), ", "require(True, ", "forged files: the attacker's symbols belong to nobody"),
    ("symbol_numbers.py", "return np.where(found, self._owners[places], NOBODY)", "return np.where(found, NOBODY, NOBODY)", "forged files: owners forgotten when a file is read"),
    ("training_state.py", "parts, flags = codec.pack(value)", "parts, flags = codec.pack(Bounded(codec.Set(value.center.expand(2, *value.shape), None, value.symbols, True)))", "sets in a checkpoint written as their centers"),
    ("training_state.py", 'kept = {name: entry(f"{side}/attributes/{name}", value, tensors) for name, value in trainer.changed().items()}', "kept = {}", "attributes forgotten in a checkpoint"),
    ("training_state.py", "ledger.own, symbols.steps, symbols.resumed_at = own, steps, steps", "ledger.own, symbols.steps = own, steps", "a resumed run counts its steps from the start"),
    ("codec.py", 'flags["diagonal"] = flat.shape[0] == flat.shape[1] and bool(flat.count_nonzero() == diagonal.count_nonzero())', 'flags["diagonal"] = flat.shape[0] == flat.shape[1]', "as many rows as elements taken for a diagonal"),
    ("codec.py", "form = Form(form.center, generators, form.radius, Rows(", "form = Form(form.center, generators, 0 * form.radius, Rows(", "radius lost on the way through a file"),
    ("batch_independence.py", "return told_apart(model, x, training) is not True", "return False", "samples never meet"),
    ("batch_independence.py", "if not bool((low <= high).all()):", "if False:", "the number of samples never matters"),
    ("clean_state.py", "return None if sides is None else torch.topk(sides, count, dim=1, sorted=False).values", "return None if sides is None else sides[:, :count]", "samples of a piece forgotten that are among the worst"),
    ("chunks.py", "excess = excess.of_worst() if once else excess", "excess = excess.of_worst()", "samples that come twice taken for different ones"),
    ("memory_plan.py", "whole = prepared.effects.draws or prepared.effects.changes", "whole = prepared.effects.draws", "a forward pass that keeps state called for every piece of a batch"),
    ("chunks.py", "with in_pieces(space, len(pieces), longest), torch.no_grad():", "with in_pieces(space, len(pieces), 1), torch.no_grad():", "a piece of a batch charged for its own length only"),
    ("chunks.py", "before, space.arithmetic = space.arithmetic, replace(space.arithmetic, pieces=pieces, length=length)\n    try:\n        with using(space.arithmetic):", "before = space.arithmetic\n    try:\n        with using(replace(space.arithmetic, pieces=pieces, length=length)):", "pieces known to the thread and not to the run"),
    ("bounded.py", "return sets, found or thread.arithmetic", "return sets, thread.arithmetic", "rules compute as their thread does, not as their run does"),
    ("autograd_functions.py", "with torch._C.DisableTorchFunctionSubclass(), using(ctx.arithmetic):\n            return wrapped(backward(ctx, grad))", "with torch._C.DisableTorchFunctionSubclass():\n            return wrapped(backward(ctx, grad))", "the backward pass of a loss computes as its thread does"),
    ("thread_context.py", "return self.outward > other.outward or", "return", "a set without roundings switches them off for all it meets"),
    ("forward_effects.py", "return Effects(draws.used, changes), found", "return Effects(draws.used, ()), found", "changed state not noticed"),
    ("forward_effects.py", "return Effects(draws.used, changes), found", "return Effects(False, changes), found", "draws not noticed"),
    ("prepared.py", "self.observed = threat.observed(self.x)", "self.observed = self.x", "plain training sees missing values"),
    ("recipe.py", "optimizer = self.optimizer(parameters, **copy.deepcopy(self.optimizer_options))", "optimizer = self.optimizer(parameters, **self.optimizer_options)", "two runs share a learning rate"),
    ("budgets.py", "both = torch.linalg.vector_norm(coefficients, dim=-1) * (1 + rounding.gamma(width + 2, dtype))", "both = torch.linalg.vector_norm(coefficients, dim=-1)", "the norm of a ball not rounded up"),
    ("expansion.py", "return total, error", "return total, 0 * error", "roundings of an expansion"),
    ("expansion.py", "error = error + sum_of_moduli(added, 1) * rounding.gamma(1, total.dtype)", "pass", "adding rows that an expansion knows is not charged"),
    ("expansion.py", "last[:, which] = coefficients * boxes[which].to(coefficients.dtype)", "pass", "boxes of a reduction lost in an expansion"),
    ("expansion.py", "torch.count_nonzero(last) > torch.count_nonzero(last.diagonal())", "False", "rows of other scalars lost in an expansion"),
    ("expansion.py", "(self.boxes > NEARLY_ONE) | (self.boxes == 0)", "self.boxes == self.boxes", "derived symbols longer than what they stand for"),
    ("budgets.py", "return total * (1 + rounding.gamma(generators.shape[dim], total.dtype))", "return total", "a box not rounded up"),
    ("budgets.py", "return torch.stack(total) * (1 + rounding.gamma(summands, coefficients.dtype))", "return rounding.up(torch.stack(total))", "any number of clauses charged as two"),
    ("step_state.py", "derived = space.fresh(len(scale), DERIVED)", "derived = space.expansion.derived", "derived symbols of one step taken for those of another"),
    ("budgets.py", "(coefficients != 0).any(-1).to(dtype) * lost", "(coefficients != 0).any(-1) * lost", "squares of a ball that underflow in float64"),
    ("reduction.py", "return stacked, rows, rounding.up(radius + error)", "return stacked, rows, radius", "error of an expansion dropped in a reduction"),
    ("chunks.py", "excess = Excess.joined((first, second), charge)", "excess = Excess.joined((first, second), 0.0)", "joining of pieces not charged"),
    ("prepared.py", "    model.train()\n", "    model.eval()\n", "certify trains in evaluation mode"),
    ("prepared.py", "faithful_copy(model).to(self.x.device, self.x.dtype)", "faithful_copy(model.eval()).to(self.x.device, self.x.dtype)", "certify leaves the model that was given in evaluation mode"),
    ("progress.py", "            for module, mode in modes:\n                module.training = mode\n", "            pass\n", "a look at a run leaves its models in evaluation mode"),
    ("training.py", "return Certificate(self.certified.eval(), self.nominal.eval(), record, seconds)", "return Certificate(self.certified, self.nominal, record, seconds)", "certify leaves its models in training mode"),
    ("factors.py", "return total.flatten(0, 1), off.flatten()", "return total.flatten(0, 1), 0 * off.flatten()", "roundings of a product by its factors"),
    ("streaming.py", "terms = terms.sub_(tau[:, part, unit].unsqueeze(-1)).clamp_min_(0.0)", "terms = terms.sub_(tau[:, part, unit].unsqueeze(-1))", "terms below the threshold taken off a streamed support"),
    ("streaming.py", "return c.abs_().sum(0, keepdim=True)", "return c.sum(0, keepdim=True).abs_()", "modulus of the sum for the sum of moduli in a stream"),
    ("factored_support.py", "value = value + group.budget * tau  #", "value = value + 0 * tau  #", "the threshold of a budget not counted"),
    ("factored_support.py", "size = 1 + a.abs().sum(1, keepdim=True) + second.moduli_b.sum(0)", "size = 1 + a.abs().sum(1, keepdim=True) + answer", "factors below the range of float32 not paid for"),
    ("factored_support.py", "parts.append((total + paid).to(form.center.dtype) * added)", "parts.append(total.to(form.center.dtype))", "float32 of a streamed support not paid for"),
    ("factored_support.py", "joined = deep + own @ same.to(own.dtype)", "joined = deep + 0 * (own @ same.to(own.dtype))", "own rows lost in a streamed support"),
    ("factored_support.py", "if (clean and group.budget is not None) or", "if group.budget is not None or", "own rows of touched samples left out of a streamed support"),
    ("factored_support.py", "rest = own * ~same.any(2).unsqueeze(1)", "rest = 0 * own", "own rows of unseen samples lost in a streamed support"),
    ("forms.py", "same = all(x.data_ptr() == y.data_ptr() and x.shape == y.shape for", "same = all(x.shape == y.shape for", "one second factor taken for another"),
    ("verified_rows.py", "values[:, torch.from_numpy(np.searchsorted(numbers, apart.numbers[~apart.is_open]))] = apart.symbols()", "pass", "a filled cell stays in the middle of its range"),
    ("verified_rows.py", "mine = known.symbols[np.isin(known.owners, samples)]", "mine = known.symbols[known.owners >= 0]", "all samples are verified"),
    ("verified_rows.py", "stays = ~(rows != 0)[(values != 0).any(0)].any(0).reshape(shape)  #", "stays = (moduli == 0) & (spread == 0)  #", "fixed symbols whose products underflow move nothing"),
    ("verified_rows.py", "return center, torch.where(added == 0, form.radius, rounding.up(form.radius + added))", "return center, form.radius", "roundings of fixed symbols"),
    ("threats/lifting.py", "observed = self.values[change.about] if change.has_clean_state else self.raw", "observed = self.values[change.about]", "a missing cell counts as recorded"),
    ("rounding.py", "return float(32 * UNIT[x.dtype] * (far + 1))", "return 0.0", "shorter moves without what their floats add"),
    ("rounding.py", "return rows * factor, gamma(1, rows.dtype) * rows.abs().sum(0)", "return rows * factor, 0 * rows.abs().sum(0)", "shorter rows not charged"),
    ("smaller_threats.py", "smaller.budgets[clause] = budget", "smaller.budgets[clause] = max(0, budget - 1)", "a smaller budget counts one sample too few"),
    ("smaller_threats.py", "rounding.shorter(form.generators[held], factor)", "rounding.shorter(form.generators[held], factor * factor)", "rows shrink more than moves"),
    ("threats/moves.py", "        if self.clip is not None:\n            return None", "        if False:\n            return None", "moves in a valid range shrink"),
    ("ranks.py", "for part in found[1:]:", "for part in found[1:1]:", "what other processes have not counted"),
    ("shares.py", "found[:, 0].amax(0) + self.ranks.added(found[:, 1])", "found[:, 0].amax(0) + found[self.ranks.rank, 1]", "rounding charged for the rows of one process alone"),
    ("shares.py", "terms = found[..., begin : begin + width].movedim(0, 2).flatten(2)", "terms = found[self.ranks.rank, ..., begin : begin + width]", "a budget that every process spends for itself"),
    ("shares.py", "return torch.topk(terms, width, dim=2, sorted=False).values", "return torch.topk(terms, width, dim=2, sorted=False).values * torch.cat((torch.ones(1), torch.zeros(width - 1))).to(terms)", "one owner of each process within a budget"),
    ("shares.py", "generators = generators.index_copy(0, own, generators[own] * mask)", "generators = generators.index_copy(0, own, generators[own] * 0)", "own rows lost on several processes"),
    ("shares.py", "return Expansion(derived, deep, weights, int(count.sum()))", "return Expansion(derived, deep, 0.5 * weights, int(count.sum()))", "deep rows of several processes halved"),
    ("interval_pieces.py", "Excess(Samples(who.numpy(), mine.samples.budget), interval, more.transpose(0, 1))", "Excess(Samples(who.numpy(), mine.samples.budget), interval, 0 * more.transpose(0, 1))", "touched samples of other processes lost"),
    ("largest_budgets.py", "budgets = [0 if number == clause else budget", "budgets = [0 if number >= clause else 0 * (budget or 0)", "other symbols missed where all budgets are answered at once"),
    ("largest_budgets.py", "total[:, 1 : count + 1] = largest.cumsum(1)", "total[:, 1 : count + 1] = largest", "only the last sample counts at every budget"),
    ("withstanding.py", "low[inputs] = torch.where(certain, level, low[inputs])", "low[inputs] = level", "what is uncertain is withstood"),
    ("withstanding.py", 'change["kind" if one_radius else "exactly"]', 'change["kind"]', "moves of other radii counted as the same"),
    ("threats/moves.py", "min(least, most) if even", "most if even", "the largest of several radii is taken for all"),
    ("optimum/changes.py", "Clause(clause.touched & ~known, clause.budget", "Clause(clause.touched, clause.budget", "optimum: verified labels stay in doubt"),
    ("optimum/linearised.py", "else (-high, -low)", "else (low, high)", "optimum: what slopes miss is not turned with the direction"),
    ("optimum/linearised.py", "term = term if still is None else term - still", "term = term if still is None else term - 2 * still", "optimum: a changed row gives back twice what it missed"),
    ("optimum/linearised.py", "dot = directions.vectors @ gradient", "dot = -(directions.vectors @ gradient)", "optimum: the gradient that is left has the wrong sign"),
    ("optimum/linearised.py", "paid = paid + tolerance * (", "paid = paid + 0 * tolerance * (", "optimum: the tolerance of solvers is free"),
    ("optimum/linearised.py", "budgets = torch.arange(1, size + 1", "budgets = torch.arange(0, size", "optimum: errors of one change too few"),
    ("optimum/linearised.py", "holds = (taken < room", "holds = (taken <= room + 1e-3", "optimum: more is withstood than there is room for"),
    ("optimum/ranges.py", "sums[:, k + 1] - mine, sums[:, k])", "sums[:, k] - mine, sums[:, k])", "optimum: a row that stays has one change fewer around it"),
    ("optimum/ranges.py", "fixed + own + fewer + slack", "fixed + fewer + slack", "optimum: a changed row does not move itself"),
    ("optimum/ranges.py", "return self._narrowed(found)", "return self._narrowed(first)", "optimum: ranges that were only guessed"),
    ("optimum/logit_losses.py", "least, most = ((1 + size).clamp_min(2.0)", "least, most = (size.clamp_min(2.0)", "optimum: a flipped hinge pulls too little"),
    ("optimum/logit_losses.py", "places = [low, high, *(place.clamp(low, high)", "places = [low, *(place.clamp(low, high)", "optimum: chords miss nothing at one end"),
    ("optimum/logit_bounds.py", "up(inputs.radius @ self.moduli(q)", "up(0 * inputs.radius @ self.moduli(q)", "optimum: inputs that move cost nothing"),
    ("optimum/branching.py", "self._settle(part.points, *self._answer(of_part, part.points), None)", "pass", "optimum: parts without further wrong labels change nothing"),
    ("optimum/branching.py", "place + 1, part.budget - 1, points)", "place + 1, part.budget - 2, points)", "optimum: a wrong row counts twice in a part"),
    ("optimum/branching.py", "Part(part.wrong, end, part.budget, points)]", "Part(part.wrong, end + 1, part.budget, points)]", "optimum: one row is in no part"),
    ("optimum/training_rows.py", "of_columns * scale.square()", "of_columns * scale", "optimum: ridges of scaled columns"),
    ("optimum/training_rows.py", "total * (one**2 + far)", "total * one**2", "optimum: an intercept far from the rows"),
    ("optimum/fitting.py", "known = (off.T * rows.weights) @ moduli", "known = 0 * (off.T * rows.weights) @ moduli", "optimum: gradients of logits that are not quite known"),
    ("votes.py", "(winner < rivals).long()", "(winner > rivals).long()", "ties go to the larger class"),
    ("votes.py", "least_cost(some, costs + 1, classes)", "least_cost(some, costs + 2, classes)", "members cost one change too many"),
    ("votes.py", "torch.where(vote == rivals, 0, 1)", "0", "members that vote for others gain nothing"),
    ("ensemble.py", "return [torch.arange(member, samples, members) for member in range(members)]", "return [torch.arange(samples) for member in range(members)]", "members share their samples"),
    ("rounding.py", "amount = bounds.abs() * (2 * UNIT[bounds.dtype])", "amount = bounds.abs() * (0.5 * UNIT[bounds.dtype])", "compiled: less than one float outwards"),
    ("rules/descent.py", "other, terms = rest.bounds.flip(0)", "other, terms = rest.bounds", "compiled: ends of a gradient not swapped"),
    ("rules/descent.py", "share = 1 - rate * decay", "share = 1 + rate * decay", "compiled: weight decay with the wrong sign"),
    ("traced.py", "return ((lower <= value) & (value <= upper)).all()", "return (lower <= upper).all()", "compiled: no tripwire inside"),
    ("traced.py", "flags = torch.stack((_all(checks), _all(held)))", "flags = torch.stack((_all(checks[:1]), _all(held)))", "compiled: void bounds not noticed"),
    ("compiler.py", "return graph.code, tuple(constants), tuple(kinds)", "return graph.code, tuple(kinds)", "compiled: a function with other constants taken"),
    ("many.py", "self.void[place] = number + 1", "self.void[place] = number", "compiled: void one step too early in one of many runs"),
    ("forms.py", "return same and np.array_equal(self.rows.numbers, other.rows.numbers)", "return same", "numbers of symbols overlooked where a second factor comes again"),
    ("forms.py", "return self.taken[1](self.taken[0].row_moduli, 0)", "return self.taken[0].row_moduli.reshape(self.radius.shape)", "elements reach as far as others do"),
    ("forms.py", "moduli = rounding.up(factor.abs() * known)", "moduli = rounding.up(0.5 * factor.abs() * known)", "multiples of rows reach less than they do"),
    ("kept_lines.py", "error = factor.abs() * self.error[here] + (rest + unit * size) * (1 + unit)", "error = factor.abs() * self.error[here]", "what is no multiple of kept lines is lost"),
    ("late_checks.py", "if least >= 0 and most < math.inf:", "if most < math.inf:", "crossed bounds not noticed"),
    ("rows.py", "if (overlap := _overlap(run, wanted))[2] > 0]", "if (overlap := _overlap(run, wanted))[2] >= 0]", "rows found that are not there"),
    ("rows.py", "return at + begin - number, place + begin - first, smallest(first + length, number + count) - begin", "return at + begin - number, place + begin - first, smallest(first + length, number + count) - begin - (length > 1)", "the last row of a run not found"),
    ("rows.py", "return at + begin - number, place + begin - first,", "return at + begin - number, place,", "rows found where their run begins"),
    ("rows.py", "np.searchsorted(first + ours[2], wanted, \"right\")", "np.searchsorted(first, wanted, \"right\")", "runs that begin before others overlooked"),
    ("rows.py", "if known in (0, len(other)):", "if True:", "rows of a union that are half known lost"),
    ("sample_axis.py", "and view.shape[axis] == len(line) and view.stride(axis) == 1", "and view.shape[axis] == len(line)", "a view taken for one along its samples"),
    ("budgets.py", "index = np.where(index < len(owners), index, -1)", "pass", "an error row taken for a symbol that a sample does not have"),
    ("support.py", "not all(map(np.array_equal, known[1:3], first))", "False", "columns of other owners taken"),
    ("support.py", "if len(view.others) == len(self.own):", "if True:", "rows of others beside own ones lost in the support"),
    ("prediction.py", "others = every[:-1] + (every[:-1] >= best)", "others = (best + 1) % len(every)", "a class compared with one other alone"),
    ("prediction.py", "others = every[:-1] + (every[:-1] >= best)", "others = every[:-1] + (every[:-1] > best)", "a class compared with itself"),
    ("fixed_parts.py", "pure = make_fx(torch.func.functionalize(graph))(*given)", "pure = graph", "compiled: data written to before they are read"),
    ("fixed_parts.py", "if node.op == \"call_function\" and arguments and fixed.issuperset(arguments):", "if node.op == \"call_function\" and arguments and not fixed.isdisjoint(arguments):", "compiled: what changes taken for fixed"),
    ("compiler.py", "product = graph.graph.call_function(node.target, (turned[1], turned[0]))", "product = graph.graph.call_function(node.target, (turned[1], turned[0].args[0]))", "compiled: factors turned the wrong way"),
    ("budgets.py", "made.summed = slice(self.summed.start, end)", "made.summed = self.summed", "error rows beside sorted columns lost"),
    ("rules/linear.py", "    total[where.stop :] = 0.0", "    total[where.stop :] = 1e-9", "sums of rows begin with something else than zeros"),
    ("factored_support.py", "paid = paid + rounding.up(both.sum(1, keepdim=True).abs()) * second.of_sum", "paid = 1 * paid", "two opposite factors that are not quite opposite"),
    ("rows.py", "return generators.index_add_(0, where, more)", "return generators.index_add_(0, where.flip(0), more)", "rows added where others stand"),
    ("products_of_deviations.py", "return Together(exponent, reach,", "return Together(exponent, 0.25 * reach,", "products of deviations: the support of the weights too small"),
    ("products_of_deviations.py", "(s > 0).sum(1, keepdim=True).sqrt()", "(s > 0).any(1, keepdim=True)", "products of deviations: one entry counted for all"),
    ("products_of_deviations.py", "(error + box(deep[:, count:], 1)).view", "error.view", "products of deviations: boxes of a reduction lost"),
    ("products_of_deviations.py", "length.pow(0.5**SQUARINGS)", "length.pow(0.5 ** (SQUARINGS - 1))", "products of deviations: one root too few"),
    ("products_of_deviations.py", "one_by_one.index_copy(0, lines, ", "one_by_one.index_copy(0, lines.flip(0), ", "products of deviations: what one line reaches taken for another"),
    ("sets.py", "if symbols.expansion is not expansion:", "if False:", "a set that waits is asked through another expansion"),
    ("sets.py", "        with using(arithmetic):\n            return sharpened()", "        return sharpened()", "a set that waits is asked in another arithmetic"),
    ("factored_support.py", "if same and second.found is found and", "if same and", "what stands ready for one budget taken for another"),
    ("products_of_deviations.py", "root = torch.where((trace < LEAST_TRACE) & deviates, math.inf, root)", "root = 1 * root", "products of deviations: what underflows is lost"),
    ("factors.py", "self.mix = b[:1] - b[1:] if self.opposed else b", "self.mix = b[:1] + b[1:] if self.opposed else b", "opposite factors added up"),
    ("rules/contractions.py", "x if x.along == along else x.without_clean() for x in others", "x for x in others", "a bias along another axis is clean where one sample was left alone"),
    ("rules/gates.py", "samples_of(a, b, condition) if kept", "samples_of(a, b) if kept", "a sample that a condition repeats is touched once"),
    ("rules/gates.py", "own_axis(*_as_sets(condition, a, b), beside=condition)", "own_axis(*_as_sets(condition, a, b))", "own rows of a sample that a condition repeats"),
    ("rules/gates.py", "check = Check.EVERYTHING if over.operands[0].exact else Check.NOTHING", "check = Check.NOTHING", "a plain gradient that is not finite passes a gate"),
    ("rules/softmax.py", "point(_pair((-1.0, 1.0), x))", "point(_pair((1.0, -1.0), x))", "logarithms of two classes exchanged"),
]]
# fmt: on


def test_files(file: str) -> Iterator[list[str]]:
    """Tests of a file, then all others, the quick ones first."""
    there = {path.stem.removeprefix("test_"): str(path) for path in (ROOT / "tests" / "boundflow").rglob("test_*.py")}
    first = FIRST.get(file, ["laws"])
    yield [there[name] for name in first]
    yield [there[name] for name in dict.fromkeys([*TESTS, *sorted(there)]) if name not in first]


def caught(mutant: Mutant, remembered: str | None) -> tuple[str, str | None, float]:
    """How it ended, the test that catches this bug, and after how many seconds."""
    begin, failure = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder:
        planting.copied(folder, {f"boundflow/{mutant.file}": lambda text: text.replace(mutant.right, mutant.wrong)})
        try:
            if remembered is not None:
                failure = planting.failing(folder, [remembered], forgotten=True)
            for files in test_files(mutant.file):
                failure = failure or planting.failing(folder, files)
            end = "caught" if failure else "SURVIVED"
        except planting.Nonsense as error:
            end = f"DOES NOT RUN ({error})"
    return end, failure.test if failure else None, time.perf_counter() - begin


def chosen(words: list[str]) -> list[Mutant]:
    """The bugs with one of the words, or all; every line of the list must be up to date."""
    for mutant in MUTANTS:
        count = (ROOT / "boundflow" / mutant.file).read_text().count(mutant.right)
        if count != 1:
            raise SystemExit(
                f"mutant '{mutant.what}': its line occurs {count} times in {mutant.file}; bring the list up to date"
            )
    return [mutant for mutant in MUTANTS if not words or any(word in mutant.what for word in words)]


def remember(tests: dict[str, str]) -> None:
    kept = {mutant.what: tests[mutant.what] for mutant in MUTANTS if mutant.what in tests}
    REMEMBERED.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    begin, mutants = time.perf_counter(), chosen(sys.argv[1:])
    tests: dict[str, str] = json.loads(REMEMBERED.read_text()) if REMEMBERED.exists() else {}
    known = [tests.get(mutant.what) for mutant in mutants]
    catching: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for mutant, (end, test, seconds) in zip(mutants, pool.map(caught, mutants, known), strict=True):
            print(f"{end:8s} {seconds:5.0f} s  {mutant.file:22s} {mutant.what}", flush=True)
            if test:
                print(f"{'':18s}by {test}", flush=True)
                catching.append(test)
                tests[mutant.what] = test
                remember(tests)
    broken = planting.failing_without_a_bug(sorted(set(catching)))
    if broken:
        print(f"{broken} fails without a bug, so what it caught does not count")
    minutes = (time.perf_counter() - begin) / 60
    print(f"{len(catching)} of {len(mutants)} planted bugs caught in {minutes:.1f} minutes")
    raise SystemExit(1 if len(catching) < len(mutants) or broken else 0)


if __name__ == "__main__":
    main()
