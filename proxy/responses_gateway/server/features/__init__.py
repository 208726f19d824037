"""What a gateway can do besides answering: each a folder, opened through `feature.py`, listed in `standard.py`."""
