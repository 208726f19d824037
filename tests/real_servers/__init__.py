"""The gateway in front of real servers that run a tiny model on the CPU: `make servers`.

Each server is started in several ways; the gateway runs before it as a process of its own, once without any setting and once
with the settings that `doctor` recommends. The results are a table in docs/servers.md. pytest collects only the tests of this
harness, which need no server.
"""
