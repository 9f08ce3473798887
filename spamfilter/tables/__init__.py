"""Tables and lines of text, classified by the likelihoods of the filter: for whoever has a table and no mailbox.

A file is read into a Table; each column has a kind, and each kind a distribution; a classifier sums them. Nothing here
knows the database of the relay.
Imports: errors, bayes and evaluation. Start with classifier, then columns for one distribution.
"""
