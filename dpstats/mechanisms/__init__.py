"""The private side's randomness: noise sources and the mechanisms that apply them."""
