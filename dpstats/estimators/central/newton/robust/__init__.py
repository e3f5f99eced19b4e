"""A bounded-influence regression: leverage weights and residual clips, for correct models."""
