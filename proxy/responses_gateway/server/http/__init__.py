"""HTTP mechanics on aiohttp, independent of the API."""
