"""What stands behind `course.py`: student versions of the sets, and what the Validate button says.

course_root.py    the folders of a course, its settings
release.py        student versions, their checks, the zip
validation.py     what the Validate button says

`nbreferee` grades, here as for any other course.
"""
