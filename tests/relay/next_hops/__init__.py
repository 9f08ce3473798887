"""Tests of the next hops, over real sockets on both sides."""
