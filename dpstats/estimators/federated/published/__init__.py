"""Methods as published, with their errors corrected."""
