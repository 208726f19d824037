"""What a guard model judges of requests and answers."""
