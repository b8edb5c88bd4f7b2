"""TExpr: an embedded tensor DSL with polyhedral scheduling."""
