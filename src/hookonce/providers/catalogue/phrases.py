"""What several declarations say in the same words."""

DOCUMENTED = "The places of ids and times are taken from documentation."
DIGEST = "There is no id: the digest of the body stands for one."
SVIX_RETRIES = "7, after 5 seconds, 5 and 30 minutes, 2, 5, 10 and 10 hours"
FROM_DOCUMENTATION = "the places of ids and types are taken from its documentation."
