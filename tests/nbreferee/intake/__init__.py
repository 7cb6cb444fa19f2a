"""Tests of nbreferee.intake: what is let in."""
