"""Marks out of the gradebook: tables, and what Canvas and Moodle hand out; it may import `course` and `intake`."""
