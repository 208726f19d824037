"""Webhooks: endpoints in the settings are notified when a background response has ended."""
