"""Descriptions of columns, of tables of counts and of released distribution functions."""
