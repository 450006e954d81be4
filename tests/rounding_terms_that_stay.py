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

STAYS: dict[str, str] = {
    "clean_state.py Excess.errors: rounding.gamma(4, up.dtype)": (
        "both `up` hold 8 roundings of (down + up) / 2 each, the middle takes one; it is needed where an excess that "
        "was settled, with a middle of its own, meets one that was not, which no caller does"
    ),
    "clean_state.py Excess.errors: rounding.up(0.5 * (down + up) + charge)": (
        "the charge beside it holds 16 roundings of down + up, of which three are taken"
    ),
    "clean_state.py Excess.total_radius: rounding.up(radius + middle.abs())": (
        "the radius is at least the modulus of the middle, (down + up) / 2 >= |up - down| / 2, and `up` in `errors` "
        "has left 6 roundings of it"
    ),
    "clean_state.py Excess.around: rounding.up(radius + rounding.gamma(1, center.dtype) * "
    "(form.center.abs() + middle.abs()))": (
        "the addition loses u (radius + charge): `up` in `errors` has left 6 roundings of the radius, and the charge "
        "of 10 takes one"
    ),
    "clean_state.py without_own: rounding.up(torch.stack((clean[1] - touched[0], touched[1] - clean[0]))"
    ".clamp_min(0.0) + charge)": (
        "a move is at most twice the moduli, and the charge holds 8 t + 48 roundings of these, of which the plain run "
        "and both subtractions take 2 t + 4"
    ),
    "expansion.py Expansion.expanded: rounding.up(error)": (
        "the error holds 2 M + 16 roundings of its sum, and the product takes M + 2 of them"
    ),
    "factors.py Factors.part: rounding.up(off * (1 + unit))": (
        "1 + unit holds 2 n + 16 roundings of off, and the products of nonnegative numbers before it take n + 3"
    ),
    "reduction.py reduce: rounding.up(radius + lost)": SPARE_SCALE,
    "reduction.py _stacked: rounding.up(radius + error)": SPARE_SCALE,
    "shares.py Shares.moduli: rounding.up(found[:, 0].amax(0) + self.ranks.added(found[:, 1]))": (
        "both summands are boxes of n rows, whose gamma(n) holds n + 6 roundings more than they take; one is missed"
    ),
    "rounding.py before_scaling: tiny(2, x.dtype)": (
        "products of a scale and a scaled value underflow only where the units of the user are smaller than 1e-290"
    ),
    "rounding.py before_scaling: affine_image(torch.stack((x, x)), scale, shift)": (
        "the charge of 12 roundings of |x scale| pays for the product, and the last step outwards for the sum"
    ),
    "rounding.py largest_of_sums: up(x.max() * (1 + gamma(terms, x.dtype)))": (
        "gamma holds n + 6 roundings more than the sum and the product take"
    ),
    "rules/bilinear.py radius_of_product: rounding.up(radius)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(second.radius + rounded)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(a.form.radius + charge * a.form.modulus)": SPARE_CHARGE,
    "rules/bilinear.py radius_of_product: rounding.up(b.form.radius + charge * b.form.modulus)": SPARE_CHARGE,
    "rules/bilinear.py middle: rounding.middle(x.bounds)": SPARE_CHARGE,
    "rules/contractions.py contraction: rounding.around(center, radius)": SPARE_CHARGE,
    "rules/contractions.py _affine_contraction: rounding.around(*ball_product(a, b, f, terms))": SPARE_CHARGE,
    "rules/bilinear.py interval_of: rounding.around(*ball_product(interval_alone(a), interval_alone(b), f, terms))": (
        SPARE_CHARGE
    ),
    "rules/sample_sums.py worst_product: rounding.widened(clean.sum(1), charge)": SPARE_CHARGE,
    "support.py Support.__call__: rounding.up(torch.cat(reaches, 2))": (
        "one addition of the error of an expansion: the reach has left n + 6 roundings of itself, and the error M + 10"
    ),
    "support.py _Own.unplaced: rounding.up(torch.stack(values).sum(0))": (
        "a sum over the parts of a clause, each of which has left 6 roundings or was not rounded; more than two parts "
        "of one clause without any rounding of their own would need it"
    ),
}
