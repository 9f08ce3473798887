"""Learning from labels: marks, bulk training, retraining and undoing; and the explanation of a verdict.

Each learning is part of one transaction of the store, and can be undone exactly. A person's mark takes precedence over
rules, and over what bulk training has taught before it.
Imports: errors, system, mail, bayes, stores and config. Start with filter, which judges and learns; then marks;
bulk/ is what `train` does.
"""
