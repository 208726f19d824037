"""Why a backend could not use what it had cached for an earlier response."""
