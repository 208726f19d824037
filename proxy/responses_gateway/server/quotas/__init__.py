"""Quotas: tokens per day and month of keys and teams, counted by all gateways together."""
