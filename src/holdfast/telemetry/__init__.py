"""One stream of typed events.  Logs, metrics, the dashboard and the tests all listen to it."""
