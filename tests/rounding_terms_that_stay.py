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

STAYS: dict[str, str] = {
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
