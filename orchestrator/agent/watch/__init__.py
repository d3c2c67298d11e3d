"""The machine's daemon: heartbeat, samples, upload loop, watchdogs, spot notices, end of the machine; and reports."""
