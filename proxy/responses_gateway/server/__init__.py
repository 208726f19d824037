"""The HTTP server: `lifespan.open_parts` opens what it is made of, `app.create_app` is the aiohttp application,
`process.serve.serve` runs it all. Nothing is imported here, since a parent of workers needs little of it."""
