"""Tables as they come and datasets by name, up to the columns that a network sees."""
