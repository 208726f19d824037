"""The window `/ui/`: a page with the running and the recent requests of all workers."""
