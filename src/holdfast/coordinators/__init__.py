"""Who is alive and who dispatches what: alone, or by lease rows in the store."""
