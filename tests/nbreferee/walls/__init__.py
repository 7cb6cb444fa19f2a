"""Tests of nbreferee.walls: the walls around strangers' code."""
