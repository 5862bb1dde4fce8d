"""Programs that a measurement starts beside itself: workers and senders, one process each."""
