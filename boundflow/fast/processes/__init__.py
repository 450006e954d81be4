"""A training on several processes."""
