"""The probe of an image's facts: its parts are joined to one script (see base.facts.probe_text)."""
