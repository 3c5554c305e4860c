SELECT pg_notify(:channel::text, '')
