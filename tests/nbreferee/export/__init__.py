"""Tests of nbreferee.export: marks for other systems."""
