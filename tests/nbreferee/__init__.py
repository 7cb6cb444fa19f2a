"""Tests of the grader, lib/nbreferee; `toyset.py` is a small problem set, `hostile/` a class that cheats."""
