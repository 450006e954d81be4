"""Steps that are traced once, compiled, and replayed."""
