"""Cases for the conformance kit, one file for each operator."""
