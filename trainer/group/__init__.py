"""The process group: collectives, and the rendezvous of its processes."""
