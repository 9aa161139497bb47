"""OAUTHBEARER tokens that a client asks for itself: whom, how patiently, and how often."""
