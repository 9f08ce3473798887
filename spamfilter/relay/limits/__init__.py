"""What strangers may take: numbers of clients, memory, counters that all processes share, and the log of hits."""
