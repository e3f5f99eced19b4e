"""The default where few columns matter: private matching pursuit."""
