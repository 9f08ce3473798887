"""Limits of clients: connections, memory, time; counters that all processes share; the log of limits that were hit."""
