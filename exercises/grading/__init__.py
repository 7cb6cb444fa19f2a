"""What stands behind `course.py`: nbgrader grades; these modules keep one bad submission from costing another a mark.

course_root.py    the folders of a course, its settings, its gradebook
intake.py         from a student's folder to a notebook whose tests are the instructor's
preprocessors.py  three steps inside nbgrader: execute with care, read a plain verdict, show students no hidden test
runner.py         one process per submission, several at a time, each under a wall limit
release.py        student versions, their checks, the zip
validation.py     what the Validate button says
templates/        the head of the feedback page
report.py         marks as CSV, Markdown and on the terminal
trial.py          given answers in, points out, through the same path: the reference, the stub, the wrong answers
"""
