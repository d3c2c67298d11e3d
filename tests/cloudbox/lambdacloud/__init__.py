"""Lambda Cloud in a box: the part of its API that kedge uses, in threads of this process, over TLS.

    with start_box(folder) as lam:              # tests: the fixtures lambda_api (no machines), lambda_box (machines)
        subprocess.run([...], env={**os.environ, **lam.environ})
        lam.client().call("GET", "/api/v1/instances").json["data"]
        lam.faults.drop_next(*LAUNCH)           # is carried out, and its answer is lost
        lam.instances(), lam.calls, lam.meter.usd()

`lam.environ` is all that kedge needs. `lam.instances()` returns the true state, even if the API shows another one.
"""
