"""One process or several: sockets, signals, and the parent of workers."""
