"""Rules of a pool: queue, retries, breaker, affinity, health."""
