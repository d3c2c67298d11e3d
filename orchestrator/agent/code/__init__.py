"""The job's code on the machine: releases, received or pulled, and the files that the command changed in them."""
