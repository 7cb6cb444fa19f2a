"""A round of grading: an assignment, results that are kept, nbgrader's rows, deadlines,
the trial of a source; it may import all of the above."""
