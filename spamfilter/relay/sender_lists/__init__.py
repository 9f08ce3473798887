"""Allowed and blocked senders: from the rules, the envelope and the header of a mail to what becomes of its verdict."""
