"""The demo: a small order service, whose only node is killed with kill -9, and loses nothing."""
