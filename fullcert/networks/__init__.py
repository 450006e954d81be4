"""Networks by name or from a file of the user, fixed features, and whether sets can follow their operators."""
