"""Tests of the front ends, over real sockets on both sides."""
