"""Arithmetic of estimates: arrays in, arrays out; no rows, no privacy."""
