"""Whether the arguments of a call are what its tool takes, and what the model meant where they are not."""
