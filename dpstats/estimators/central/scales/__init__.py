"""Centres and scales of columns that nobody declared, found before the fit."""
