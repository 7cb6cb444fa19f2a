"""A class of students who forge, err, break, hoard, spy and kill, each with the mark that is just."""
