"""Rollouts: the calls of the model are kept token by token, and given to trainers."""
