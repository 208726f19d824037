"""What servers could take from their prefix cache, and why they did not."""
