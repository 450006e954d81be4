"""Files without code: certificates, checkpoints, and what is checked before any of it is used."""
