"""Who does it, and where: a grading process, its messages, many of them, many machines.
It may import all of the above."""
