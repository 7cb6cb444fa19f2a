"""What stands behind `course.py`: student versions of the sets.

course_root.py    the folders of a course, its settings
release.py        student versions, their checks, the zip

`nbreferee` grades and says what the Validate button says, here as for any other course.
"""
