"""The only code that changes the world: it observes runs, applies plans, follows commands and reconciles the ledger.

world          the ports that everything here works through
observing/     finds out what exists before a plan is made; reconciles the ledger with it
apply          a whole plan: the run's lock, the order of its actions, the run's opening and closing
performing     one action: calls journal (intent and outcome) and steps/
steps/         how each kind of action is carried out
reap           ends what runs have left
extending      moves deadlines; reconciling continues a move that was interrupted
agent_client   the agent's verbs, over a connection
events         what is reported to the command line meanwhile
"""
