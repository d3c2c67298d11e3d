"""One optimizer step: the learner and its features (precision, sharding, EMA, recompute, schedule)."""
