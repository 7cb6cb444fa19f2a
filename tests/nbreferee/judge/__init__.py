"""Tests of nbreferee.judge: the instructor's tests against answers."""
