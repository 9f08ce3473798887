"""Tables and lines of text, classified."""
