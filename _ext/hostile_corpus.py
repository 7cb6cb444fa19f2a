"""The instructors' table of hostile submissions: plain nbgrader's recorded outcomes, ours of the last `make test`."""

from generated import add_page
from wrong_answers import plain


def write(root) -> str:
    from tests.nbreferee.hostile import table

    return table.markdown(table.joined(), plain)


def setup(app):
    add_page(app, "chapters/instructors/hostile", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
