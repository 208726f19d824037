"""The rules of a pool: wait queue, retries, circuit breaker, affinity, health checks."""
