"""Which parser reads the answers of each model."""
