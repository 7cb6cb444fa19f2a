"""Tests of chapters/take_along: each file stands alone, compiles, is the library's function, and stands on its page."""
