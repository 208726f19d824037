"""Serving with one process or several: sockets, signals, the parent of workers and its link to them."""
