"""HTTP mechanics on aiohttp: nothing of the API."""
