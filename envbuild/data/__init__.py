"""Facts that age, as TOML, each row with its source."""
