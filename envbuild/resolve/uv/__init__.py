"""Ask uv, question by question, until the answer fits the base."""
