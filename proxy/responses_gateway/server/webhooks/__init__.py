"""Webhooks: endpoints in the settings are told when a background response has ended."""
