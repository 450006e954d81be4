"""Certified training: the recipe, the checks before it, the loop, and what can be seen of it."""
