"""The tests: the path of a test is the path of what it tests, and helpers are imported as `tests.<folder>.<module>`."""
