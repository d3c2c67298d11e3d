"""A cloud in a box: AWS as far as kedge uses it, on this computer, with a meter and with faults to order."""
