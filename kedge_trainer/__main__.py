"""Entry point of `python -m kedge_trainer`, which takes the same arguments as `python -m trainer`."""

from kedge_trainer import load_trainer

load_trainer()  # also where this module is only imported: in processes that are started anew for a run

if __name__ == "__main__":
    from trainer.__main__ import start

    start()
