"""Where the threads of sessions go, and what servers are told of them."""
