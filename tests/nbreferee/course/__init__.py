"""Tests of nbreferee.course: a round of grading."""
