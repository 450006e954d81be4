"""Several runs of one recipe, their table and their curves."""
