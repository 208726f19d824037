"""`code_interpreter`: Python code of the model is run, in a sandbox or by an MCP server."""
