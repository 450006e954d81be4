"""Sets as values: affine forms, products by their factors, whose samples stand where, what clean samples are."""
