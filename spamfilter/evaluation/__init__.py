"""How good a filter is: protocols on labelled mail, contenders, error rates and curves.

Writes nothing to a database.
Imports: errors, system, mail, bayes, stores, config and learning. Start with runs, which evaluates contenders.
"""
