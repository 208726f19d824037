"""Programs of users whose tools the gateway runs."""
