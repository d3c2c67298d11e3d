"""AWS in the box: moto behind a gate with rules, faults, a meter, and machines that boot."""
