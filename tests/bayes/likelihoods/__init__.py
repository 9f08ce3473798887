"""Tests of the rows of LIKELIHOODS: what holds for all of them, and what each of them computes."""
