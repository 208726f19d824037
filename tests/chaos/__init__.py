"""Real processes that are killed, halted, cut off and starved, and what their clients and operators notice of it."""
