"""Least squares on rows that miss covariates: completed, and fitted to what was released."""
