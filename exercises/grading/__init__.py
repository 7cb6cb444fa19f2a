"""What stands behind `course.py`: student versions of the sets.

course_root.py    the folders of a course, its settings
leaks.py          which lines nobody may read who has not answered, and which text holds one
release.py        student versions, their checks, the zip

`nbreferee` grades and says what the Validate button says, here as for any other course.
"""
