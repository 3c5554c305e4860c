"""Why a task does not run: what the store knows of it, in sentences."""
