"""Cases of the operators: `<stem>.py` holds `cases(rng)`, an iterable of `dovetail.testing.Case`."""
