"""The tools that the gateway runs itself: opened with the gateway, and for each request that declares some of them."""
