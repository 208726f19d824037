"""Which hosts the gateway may contact, and under which names it may be addressed. They judge texts, and resolve no name."""
