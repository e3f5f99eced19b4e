"""Mixture models: where they start, the steps of the EM algorithm, and their finish."""
