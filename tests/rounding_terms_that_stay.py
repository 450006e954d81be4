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
    "reduction.py reduce: rounding.up(radius + box(stacked[dropped]))": SPARE_SCALE,
    "reduction.py _stacked: rounding.up(radius + error)": SPARE_SCALE,
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
}
