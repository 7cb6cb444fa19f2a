"""Tests of nbreferee.pages: what people see of a verdict."""
