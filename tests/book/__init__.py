"""Tests of the book: its concordance, the stored outputs of its notebooks, and its built pages."""
