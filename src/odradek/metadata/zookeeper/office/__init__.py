"""The office of the elected controller: what it reads, decides, writes and tells."""
