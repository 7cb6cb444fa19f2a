"""Tests of what the chapters prove, one file per topic; each test claims the labels that it would refute."""
