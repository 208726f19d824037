"""What the model was asked and what it sampled, token by token, as the backend tells it."""
