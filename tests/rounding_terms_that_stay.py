"""Rounding terms whose removal no law can notice, each with the proof why it stays (`rounding_terms.py`).

``gamma(n)`` stands for ``2 n + 8`` roundings, and a sum of n terms with its factor ``1 + gamma`` takes at most n + 2 of
them. The rest is *spare*, and pays for what comes directly after it. A term that is covered by such a spare stays where
the spare is a matter of constants, so that nobody who makes gamma smaller has to find it again.
"""

SPARE_SCALE = (
    "a derived symbol is scaled by a box of its rows, and each use of it is charged gamma(M + 4) of that scale: at "
    "least M + 10 roundings of it are spare, and one is missed here"
)

SPARE_CHARGE = (
    "the radius takes a charge of gamma(terms) of all moduli, which hold the radius too: 8 roundings of them are "
    "spare, and two are missed"
)

LAST_STEP = (
    "the step outwards at the end: the amount that is added before it holds at least four roundings more than are "
    "taken, of moduli that are no less than the bound"
)

AT_THE_ENDS = (
    "the product at the ends is charged 4 n + 24 roundings of all moduli, of which the plain run, center and rows take "
    "2 n, and the roundings of the middle, of its half width and of the bounds seven"
)

MEAN_VALUE = (
    "slopes are bounded by their extremes on the whole segment to the center, whose average is what counts: where a "
    "set is wide, the radius is longer than any member needs by far more than roundings, and where it is a point, "
    "`_logit_error` holds 14 (classes + 8) roundings of a probability, of which all formulas take a part"
)

CONVEX = (
    "the logarithm of a sum of exponentials bends: it is off its tangent by less than the difference of the slopes "
    "says, by far more than roundings, and where a set is a point `_logit_error` holds 14 roundings of all terms"
)

ON_A_GPU = (
    "a kernel of a GPU adds up k terms in k + 2 roundings, and the symbols of a term in as many as they are: no law "
    "runs there, and the same terms of `largest` and `term`, which PyTorch adds up, are noticed"
)

BESIDE_FLOAT32 = (
    "what is paid for float32 holds twice the roundings it has to, of moduli that are no less: half of it is spare, "
    "and a few roundings of float64 are missed"
)

TWICE = (
    "what is charged for roundings is at least twice what they can be, and a few roundings of the charge itself are "
    "missed"
)

LONGER = (
    "a length is made longer by 2 d + 16 roundings, of which its squares, their sum and its root take d / 2 + 2: the "
    "few products and sums that are made of it here are paid for by the rest"
)

FORM = (
    "a quadratic form has a slack of 2 (4 d + 24) roundings of |H| |a|^2, of which 2 d + 12 are taken where it is "
    "made: by Cauchy and Schwarz a product of two norms holds the rest times |H| |a| |b|, and 2 d + 8 roundings are "
    "missed here"
)

LONGER_FORM = (
    "the norm of a row is made longer by 2 d + 16 or, in a quadratic form, by 32 roundings, of which it takes d / 2 + "
    "2 or three: the rest pays for the few products and sums here"
)

STAYS: dict[str, str] = {
    "optimum/branching.py _Search._leads: up(length(center)[:, None] * charge, 4)": LONGER,
    "optimum/branching.py _Search._least: rounding.of_ours(32, slopes.dtype)": (
        "a sigmoid is off by a few roundings, and the eigenvalue takes 26 off. A logit z + h that is rounded has a "
        "slope off by more of them only where |z + h| > 50 and |z| > 26 u: there a tenth of the error of z, at least "
        "1.2 u |z|, is more than all of the slope"
    ),
    "optimum/branching.py _distances: up(off, 4)": TWICE,
    "optimum/branching.py _distances: up(lost, n)": TWICE,
    "optimum/branching.py _distances: up((length(gradient) + up(lost, n) + idle) / least, 2)": LONGER,
    "optimum/branching.py _distances: length(weights)": (
        "twice as much is charged as can be lost; where squares of weights underflow, 128 roundings of 1 for the "
        "function of each row are more than all of its logit"
    ),
    "optimum/branching.py _distances: length(rows.ridge * weights)": (
        "twice as much is charged as can be lost; where squares underflow, one rounding of numbers below 2^-511 is "
        "less than what the length of the gradient holds for that"
    ),
    "optimum/fitting.py logits_of: rounding.tiny(rows.width, weights.dtype)": (
        "both lengths hold the root of 10 TINY, so the charge is at least (2 d + 8) u 10 TINY, and d products that "
        "underflow lose d u TINY"
    ),
    "optimum/fitting.py logits_of: up(error, 2)": TWICE,
    "optimum/fitting.py left: up(rounding.of_ours(n, value.dtype) * size, n)": TWICE,
    "optimum/inverse.py Inverse.remainder: rounding.tiny(self.summands, asked.dtype)": (
        "the length of the remainder holds the root of 10 TINY, which is more than all products that underflow"
    ),
    "optimum/inverse.py Inverse.remainder: charge (2)": TWICE,
    "optimum/inverse.py Inverse.remainder: length(asked)": (
        "twice as much is charged as can be lost; where squares underflow, the length of the remainder holds the root "
        "of 10 TINY, and roundings of what is asked are less"
    ),
    "optimum/inverse.py Inverse.remainder: length(self.moduli)": (
        "twice as much is charged as can be lost, and no square underflows: no ridge is below LEAST^3"
    ),
    "optimum/linearised.py Linearised.asked: up(charge * directions.lengths, 2)": TWICE,
    "optimum/linearised.py Linearised.most: up(count * loss.error, 2)": (
        "the whole sum is charged 4 clauses + 12 roundings of itself, of which it takes 2 clauses + 2"
    ),
    "optimum/linearised.py Linearised._longest: rounding.of_ours(6, torch.float64)": LONGER,
    "optimum/linearised.py Linearised.pull: up(direction.abs() @ length(self.gradient.value), len(direction))": LONGER,
    "optimum/linearised.py Linearised.reach: up(longest, 4)": (
        "what rows pull is made longer by 24 roundings, of which three are taken: the rest pays for three more"
    ),
    "optimum/linearised.py largest_budget: rounding.of_ours(6, room.dtype)": (
        "two differences are rounded once each, by a share of themselves, and the sums that are compared with them "
        "hold 15 roundings more than they take; without a change, rounding keeps the sign of a difference"
    ),
    "optimum/logit_bounds.py Answers.direction: up(charge, 4)": LONGER,
    "optimum/logit_bounds.py Answers.direction: length(inputs.center) (2)": (
        "gamma holds 8 roundings more than ours and those of a plain model, and a rounding of gamma is less; where "
        "squares underflow, the length of the radius holds the root of 10 TINY"
    ),
    "optimum/logit_bounds.py Answers.direction: length(inputs.radius)": (
        "gamma holds 8 roundings more than ours and those of a plain model, and a rounding of gamma is less; where "
        "squares underflow, the length of the center holds the root of 10 TINY"
    ),
    "optimum/ranges.py Between.norms: up((square + self.slack * lengths.square()).sqrt(), 8)": FORM,
    "optimum/ranges.py Between.of: rounding.of_ours(2 * rows.width + 8, torch.float64)": (
        "both inverses are charged 2 d + 16 roundings of sqrt(d) / least or more for what columns leave, of which they "
        "take half, and sqrt(d) / least is at least |H|: what is left pays for the quadratic form"
    ),
    "optimum/ranges.py Between.of: length(larger.reshape(1, -1))": TWICE,
    "optimum/ranges.py Between.of: length(directions.left)": LONGER,
    "optimum/ranges.py Observed.by_secants: up(far * moves.abs(), 4)": LONGER_FORM,
    "optimum/ranges.py Observed.by_secants: up(radius, 4)": LONGER_FORM,
    "optimum/ranges.py Observed.by_secants: up(around, 4)": LONGER_FORM,
    "optimum/ranges.py Observed.by_secants: rounding.of_ours(2 * self.rows.width + 4, torch.float64)": FORM,
    "optimum/ranges.py Observed.by_secants: length(self.rows.scale)": (
        "the norms of rows that it is multiplied by are longer by d + 14 roundings than they have to be, and no square "
        "of a scale underflows"
    ),
    "optimum/ranges.py Observed.by_secants: length(value[None])": (
        "twice as much is charged as can be lost; where squares underflow, the length of what is not known of the "
        "gradient holds the root of 10 TINY, over the least eigenvalue, and no form is more"
    ),
    "optimum/ranges.py Observed.by_secants: length(value)": FORM,
    "optimum/ranges.py Observed._without_own: up((k + 1) * error, 4)": (
        "errors of k + 1 rows are charged, and k are taken: one of them is far more than roundings of all"
    ),
    "optimum/squared.py SquaredOptimum.of: rounding.of_ours(1, slopes.dtype)": (
        "the gradient is charged n + 12 roundings of all derivatives more than its sum takes, and one is missed"
    ),
    "optimum/training_rows.py Rows.least_eigenvalue: rounding.of_ours(n, slopes.dtype) (2)": (
        "the mean is off by (n + 2) u times that of the moduli, which is at most |xbar| + sqrt V, V being the "
        "variance. The sum of slopes that it is divided by is taken less by n + 24 roundings more than it can be, "
        "which pays for |xbar|. With a variance the matrix is that of a ridge of r0 + S V: with far = |xbar|^2 and T = "
        "S (1 + far), the bound gains V S T / (r0 (r0 + T)) of itself where that is small, and is off by 2 (n + 2) u "
        "|xbar| sqrt V S / (r0 + T). The gain is more unless sqrt V < 2 (n + 2) u |xbar| r0 / T, where it is off by 4 "
        "((n + 2) u)^2"
    ),
    "optimum/training_rows.py Rows.least_eigenvalue: rounding.of_ours(n, slopes.dtype) (3)": (
        "the sum was taken less before, by n + 24 roundings more than it is off, and a product with a power of two is "
        "exact"
    ),
    "symbols/budgets.py _largest_on_device: rounding.gamma(budget + 2, total.dtype)": ON_A_GPU,
    "symbols/budgets.py Columns._without_sorting: rounding.gamma(width, dtype)": ON_A_GPU,
    "symbols/budgets.py Columns._without_sorting: rounding.gamma(budget + 2, dtype)": ON_A_GPU,
    "fast/support/factored_support.py _Second.__init__: rounding.of_ours(1, deep_b.dtype)": BESIDE_FLOAT32,
    "fast/support/factored_support.py _Product.part: rounding.up(both.sum(1, keepdim=True).abs())": BESIDE_FLOAT32,
    "fast/support/factored_support.py _Product._split: rounding.of_halves()": (
        "numbers are split for matrix units of a GPU alone, where no law runs; what each loses is less than half of it"
    ),
    "sets/forms.py Form.moduli_times: rounding.up(factor.abs() * known)": (
        "the sum of the moduli of n rows holds n + 6 roundings more than it takes, and two are missed"
    ),
    "fast/support/reused_coefficients.py KeptLines.multiple: unit": (
        "``unit * size`` holds 2 n + 16 roundings of the rows for n symbols; the rest is at most two sizes, of which n "
        "+ 4 roundings are taken, and two by this sum"
    ),
    "symbols/reduction.py reduce: rounding.up(radius + lost)": SPARE_SCALE,
    "symbols/reduction.py _stacked: rounding.up(radius + error)": SPARE_SCALE,
    "fast/processes/row_placement.py Shares.moduli: rounding.up(found[:, 0].amax(0) + self.ranks.added(found[:, 1]))": (
        "both summands are boxes of n rows, whose gamma(n) holds n + 6 roundings more than they take; one is missed"
    ),
    "sets/factors.py Factors.part: unit (2)": (
        "the bias may be the first of inner + 2 terms, and is then rounded with each of the others; of these roundings "
        "its own error holds ten. The products at hand add it last, and round it twice"
    ),
    "rules/bilinear.py radius_of_product: rounding.up(radius)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(second.radius + rounded)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(a.form.radius + charge * a.form.modulus)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(b.form.radius + charge * b.form.modulus)": SPARE_CHARGE,
    "rules/bilinear.py middle: rounding.middle(x.bounds)": SPARE_CHARGE,
    "rules/contractions.py _interval: rounding.around(center, radius)": SPARE_CHARGE,
    "rules/contractions.py _interval: "
    "rounding.widened(center + ends, torch.add(radius, ends.abs().amax(0), alpha=charge))": SPARE_CHARGE,
    "rules/contractions.py _affine_contraction: rounding.around(*ball_product(a, b, f, terms))": SPARE_CHARGE,
    "rules/bilinear.py interval_of: rounding.around(*ball_product(interval_alone(a), interval_alone(b), f, terms))": (
        SPARE_CHARGE
    ),
    "rules/products_over_samples.py worst_product: rounding.widened(clean.sum(1), charge)": SPARE_CHARGE,
    "rules/ends_of_products.py _ends: rounding.middle(b.bounds)": AT_THE_ENDS,
    "rules/ends_of_products.py _ends: rounding.middle(a.bounds)": AT_THE_ENDS,
    "rules/ends_of_products.py _ends: rounding.around(*around(*rounding.middle(a.bounds), weights))": AT_THE_ENDS,
    "operators/optimizer_update.py _descended: rounding.widened(bounds, charge)": LAST_STEP,
    "rules/sums_over_samples.py _worst_sum: rounding.widened(clean.sum(1), charge)": LAST_STEP,
    "rules/linear.py summed: rounding.widened(bounds, torch.full_like(bounds[0], rounding.tiny(terms, x.dtype)))": (
        "the sum was rounded outwards before, with eight roundings more than are taken"
    ),
    "rules/linear.py _combined_bounds: rounding.widened(bounds, rounding.gamma(terms, like.dtype) * moduli + "
    "rounding.tiny(terms, like.dtype))": LAST_STEP,
    "operators/normalisation.py _normalised: rounding.gamma(8 + terms, x.dtype)": (
        "the rule of the mean charges 2 n + 12 roundings of the mean modulus, which is at least a share 1 / n of every "
        "|x|, and difference and product a step each; x scale - mean scale takes n + 1 of the mean modulus, one of |x| "
        "and one of the result. It stays for means that are computed with more than n roundings, as Welford's may be"
    ),
    "operators/normalisation.py _normalised: rounding.gamma(8 * terms, x.dtype)": (
        "no exact value is beyond sqrt(n - 1), and `loss` holds 2 n + 24 roundings of every value: only where n is "
        "more than 700 in float32, and a spread is off by more than n roundings, it would be needed"
    ),
    "operators/normalisation.py layer_norm_backward: rounding.gamma(2 * terms + 8, x.dtype)": (
        "`loss` has widened the normalised input by 2 n + 24 roundings of all of (|x| + |mean|) scale, and its product "
        "with a mean of products takes that twice; PyTorch's formula takes n + 10. It stays for formulas that do not "
        "go through the normalised input"
    ),
    "operators/softmax.py log_softmax_bounds: rounding.widened(exact, error)": LAST_STEP,
    "operators/softmax.py softmax_bounds: rounding.widened(image, image * _logit_error(bounds) + lost)": LAST_STEP,
    "operators/softmax.py _charged: rounding.widened(view.bounds, charge)": LAST_STEP,
    "operators/softmax.py _charged: rounding.up(view.form.radius + charge)": (
        "the combination before it has charged 18 roundings of the modulus, which holds the radius, and takes eleven"
    ),
    "operators/softmax.py _by_taylor: rounding.gamma(s.shape[-1] + 4, s.dtype)": (
        "every probability that is counted was widened by 28 (classes + 8) roundings of itself (`_logit_error`, twice) "
        "or is 1 less one that was, and this takes 2 classes + 8; where one is cut off at 1, the smaller of two errors "
        "is that of the others. It stays for probabilities that are known better"
    ),
    "operators/softmax.py _by_mean_value: rounding.gamma(classes + 4, low.dtype)": MEAN_VALUE,
    "operators/softmax.py _softmax_radius: rounding.up(error + kept + charge)": (
        "two roundings are missed: of `error`, which is longer by 2 classes + 16 of itself and takes 2 classes + 8; of "
        "`kept`, of whose moduli `charge` holds 2 classes + 16; and of `charge`, which holds ten of itself"
    ),
    "operators/softmax.py log_softmax_last: rounding.deviation(softmax_bounds(view.bounds), p)": CONVEX,
    "operators/softmax.py log_softmax_last: rounding.up(error + kept + rounded)": (CONVEX),
    "operators/softmax.py log_softmax_last: unit": CONVEX,
    "operators/softmax.py log_softmax_last: unit (3)": CONVEX,
    "rules/unary.py range_of: rounding.widened(y, allowance(function, bounds, y))": (
        "the allowance holds 16 roundings, for functions that PyTorch computes within a few of them, on any platform"
    ),
    "rules/unary.py _chord_or_constant: rounding.middle(image)": (
        "only the middle is taken, which is not widened: any line will do, and how far f is off it is found afterwards"
    ),
    "rules/unary.py error_of_line: rounding.deviation(image, mu)": (
        "the `up` around it pays for eight roundings, of which the difference, the product and the sum take three"
    ),
    "rules/unary.py _offsets: rounding.gamma(1, dtype)": (
        "a derivative is off by a few roundings of itself, which times the width are a few of |slope x|, and "
        "`_off_the_line` charges 80 of these; it stays for functions whose derivative is computed worse"
    ),
    "rules/unary.py _offsets: rounding.tiny(1, dtype)": (
        "a derivative that underflows misses the critical point, by no more than the tail of its function is long: "
        "what is lost there is less than the 10240 smallest normal numbers of the allowance. It stays for functions "
        "whose derivative underflows where they still bend"
    ),
    "rules/unary.py _off_the_line: rounding.up(delta + LINE * rounding.gamma(1, image.dtype) * moduli + "
    "allowance(function, bounds, image))": (
        "80 roundings of the moduli are charged, and delta, which is at most twice these but for the slack at a "
        "critical point that no value of a bent function reaches, takes three"
    ),
    "rules/unary.py apply: rounding.tiny(2, x.dtype)": (
        "functions that are not exact allow for 10240 smallest normal numbers; exact ones have slopes 0, 1 and -1 on "
        "narrow intervals, which do not underflow, and on others 80 roundings of what they are wide. It stays for "
        "exact functions with other slopes"
    ),
    "rules/unary.py apply: charge": (
        "the error of a line holds 80 roundings of |mu|, or, where the cruder one is less, eight of |f - mu| and "
        "|slope x|, which are no less than |mu| unless the image is next to mu, and then it was widened by as much"
    ),
}
