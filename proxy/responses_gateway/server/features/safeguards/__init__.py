"""Tool calls of answers, judged by a model of the pool before the client runs them."""
