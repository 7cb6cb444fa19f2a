"""Tests of nbreferee.rpc: what passes between two processes."""
