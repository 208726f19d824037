"""Keys of clients that are made and revoked at `/admin/keys`, while the gateway runs."""
