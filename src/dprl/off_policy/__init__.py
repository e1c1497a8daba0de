"""Off-policy evaluation as a saddle point; nothing private."""
