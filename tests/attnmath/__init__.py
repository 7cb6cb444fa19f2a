"""Tests of the library, lib/attnmath; `cases` says how each component is called."""
