"""The Grafana dashboards: contents (`pages`), the types used there (`panels`, `queries`), and Grafana's JSON (`grafana`)."""
