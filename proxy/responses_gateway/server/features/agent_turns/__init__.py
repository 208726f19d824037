"""How the turns of agents go: what their answers came to, and what the gateway does about those that end early."""
