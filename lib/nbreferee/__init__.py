"""Grade the notebooks of strangers: the verdict is computed in a process that the student's code cannot reach.

Two processes share the work. The *student* process runs the submitted cells and answers questions about values. The
*grading* process runs the instructor's tests and asks. What passes between them is described, never executed:
``nbreferee.codec`` turns values into bytes and back, ``nbreferee.wire`` carries the bytes. The package depends on NumPy
alone and knows nothing of any one course.
"""
