"""The load harness: what the gateway costs beside a plain byte relay (`make bench`, or `python -m bench.run`)."""
