"""The Grafana dashboards: what they show (`pages`), in what words (`panels`, `queries`), and as Grafana's JSON (`grafana`)."""
