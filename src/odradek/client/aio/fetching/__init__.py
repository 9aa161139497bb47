"""The fetching of a consumer: positions, requests, and when each is due."""
