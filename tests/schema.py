"""The schema that this version of the code makes."""

NEWEST = 6
