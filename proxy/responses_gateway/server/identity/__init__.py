"""Who a client is that has no key of the settings: what a token of an issuer or a trusted proxy says of it."""
