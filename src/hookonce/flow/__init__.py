"""The way of an event: receive, verify, accept, claim, handle, settle."""
