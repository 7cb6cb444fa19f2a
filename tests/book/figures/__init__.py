"""Tests of the interactive figures, each held against NumPy in a real browser."""
