"""The conformance suite of the storage: the same promises, whatever the database and the driver."""
