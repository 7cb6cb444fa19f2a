"""Tests of nbreferee.workers: the processes that grade."""
