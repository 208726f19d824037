"""What the metrics, the log line, the trace and the window say of one request."""
