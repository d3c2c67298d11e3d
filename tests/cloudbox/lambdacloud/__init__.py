"""Lambda Cloud in a box: its API as far as a launch's life needs it, in threads of this process, over TLS.

    with start_box(folder) as lam:              # tests: the fixtures lambda_api (no machines), lambda_box (machines)
        subprocess.run([...], env={**os.environ, **lam.environ})
        lam.client().call("GET", "/api/v1/instances").json["data"]
        lam.faults.drop_next(*LAUNCH)           # carried out, and the answer is lost
        lam.instances(), lam.calls, lam.meter.usd()

`lam.environ` is all that kedge needs. What `lam.instances()` shows is the truth, whatever the API says.
"""
