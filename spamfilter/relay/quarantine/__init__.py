"""The quarantine: mail that was not delivered, to be read, released or deleted, and what became of each."""

from spamfilter.relay.quarantine.history import UNREADABLE, event_text
from spamfilter.relay.quarantine.kept_mail import Quarantined, readable
from spamfilter.relay.quarantine.quarantine import Quarantine
from spamfilter.relay.quarantine.release import Released

__all__ = ["UNREADABLE", "Quarantine", "Quarantined", "Released", "event_text", "readable"]
