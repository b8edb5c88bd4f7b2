"""What `texpr verify` asks of a mapping's JSON, in integers: it shares no code with what made the mapping."""
