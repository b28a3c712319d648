"""Jobs: put together, sent again, sent for a verb."""
