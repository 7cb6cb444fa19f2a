"""Tests of what holds the repository together: the set-up, the layout of the tests, the benchmarks."""
