"""What leasehold adds to LocalStack: see dynamodb.py and loopback.py."""
