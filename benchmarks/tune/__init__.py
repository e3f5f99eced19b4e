"""What each constant of an estimator is worth: error and coverage with other values of it."""
