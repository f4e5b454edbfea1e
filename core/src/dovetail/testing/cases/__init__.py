"""Cases of the standard operators: `<stem>.py` holds `cases(rng)`, an iterable of `Case`."""
