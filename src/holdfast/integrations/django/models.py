"""No models: our tables are our own.  Django sends `post_migrate` only to apps that have this."""
