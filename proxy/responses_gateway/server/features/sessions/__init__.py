"""The sessions of agents: each a tree of threads, with what it used and where its time went."""
