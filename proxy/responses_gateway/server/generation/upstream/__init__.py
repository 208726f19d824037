"""What one response asks of backends."""
