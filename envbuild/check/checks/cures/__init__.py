"""What mends a failure: hints that name the package and the release."""
