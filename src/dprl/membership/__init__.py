"""Membership inference: how an attack is measured."""
