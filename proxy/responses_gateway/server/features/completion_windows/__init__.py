"""Background responses that wait for their completion window, until backends are idle or the deadline nears."""
