"""A streaming spam filter: an SMTP relay that judges mail with naive Bayes and learns from its users."""

__version__ = "0.1.0"
