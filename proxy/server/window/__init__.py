"""The window `/ui`: one page to see every stream, what runs and what ran."""
