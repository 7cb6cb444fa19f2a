"""Tests of this course, exercises/: its problem sets, their release, and what they grade."""
