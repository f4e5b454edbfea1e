"""Virtual devices of dovetail: AUTO chooses a device, HETERO places each node on one of several."""
