"""Naive Bayes on tables and lines of text, by the likelihoods of the filter.

A file is read into a Table; each column has a kind, and each kind a distribution; a classifier sums them. Nothing here
knows the database of the relay.
Imports: errors, bayes and evaluation. Start with classifier, then columns for one distribution.
"""
