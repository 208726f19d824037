"""What the gateway tells its operators: Prometheus metrics, logs and traces."""
