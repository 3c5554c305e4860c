"""SQL texts: loaded from files, one text each, and rendered for every driver by one function."""
