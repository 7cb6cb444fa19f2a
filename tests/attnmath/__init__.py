"""Tests of the library, lib/attnmath; `cases.py` says how each component is called."""
