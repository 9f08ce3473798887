"""Mail and clients that mean harm."""
