"""One run: its options, samples, threat, recipe and what it rests on, before and while it trains."""
