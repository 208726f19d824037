"""What the gateway changes about the calls of a real model that is small enough for any machine."""
