"""`python -m hookonce`."""

from hookonce.cli import main

main()
